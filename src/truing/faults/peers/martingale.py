"""martingale: a record of every token by sampler and trainer, and alarms over it."""

from typing import Any

from truing.faults.peers.peer import Peer
from truing.faults.peers.recorded import RecordedStage
from truing.faults.peers.tokens import answer_of, has_sampler_logprobs, rows_of

NOT_THE_SAME = ("stale-sampler", "half-synced", "sampler-one-behind", "sampler-in-bfloat16", "retokenised")
"""Faults by which sampler and trainer have other weights, another precision or another input."""

OTHER_SETTINGS = ("temperature-not-in-trainer", "min-tokens-not-in-trainer", "penalty-on-prompt")
"""Faults by which the trainer has other settings of the sampler."""


def feed(run: RecordedStage) -> dict[str, Any]:
    """The sampling contract, and of each update its digest of the weights and its answers.

    An answer with a log-probability that is no number is left out, as its adapter for TRL does.
    """
    updates: list[dict[str, Any]] = []
    for update in run.updates:
        answers = [answer_of(each) for each in rows_of(update) if has_sampler_logprobs(each)]
        updates.append({"weights": update.step_row.facts["weights"]["before"], "answers": answers})
    sampling = run.recipe["sampling"]
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    return {
        "sampler": {name: sampling[name] for name in names} | {"max_tokens": sampling["max_new_tokens"]},
        "updates": updates,
    }


PEER = Peer(
    "martingale",
    "a token record by its `Recorder`: the digest of the weights, prompt, ids, and the log-probabilities of"
    " sampler and trainer; alarms of its monitor after each update, and the lines of its doctor at the end",
    feed,
    causes={
        "stale_server": NOT_THE_SAME,
        "doctor: different weights": NOT_THE_SAME,
        "doctor: floor on ordinary tokens": (*NOT_THE_SAME, *OTHER_SETTINGS),
        "doctor: floor in the tail": ("sampler-in-bfloat16",),
        "weights_unchanged": ("optimizer-skips",),
    },
    cause_findings=("stale_server", "doctor: different weights", "doctor: floor in the tail"),
)
