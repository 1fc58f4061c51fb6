"""martingale: a record of every token by sampler and trainer, and its alarms."""

from typing import Any

from truing.faults.peers.peer import Peer
from truing.faults.peers.recorded import RecordedStage
from truing.faults.peers.tokens import answer_of, has_sampler_logprobs, rows_of

NOT_THE_SAME = ("stale-sampler", "half-synced", "sampler-one-behind", "sampler-in-bfloat16", "retokenised")
"""Faults with different weights, precision or input in sampler and trainer."""

OTHER_SETTINGS = ("temperature-not-in-trainer", "min-tokens-not-in-trainer", "penalty-on-prompt")
"""Faults with different sampler settings in the trainer."""


def feed(run: RecordedStage) -> dict[str, Any]:
    """Return the sampling parameters, and each update's weights digest and answers.

    An answer with a missing log-probability is left out, as in its adapter for TRL.
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
