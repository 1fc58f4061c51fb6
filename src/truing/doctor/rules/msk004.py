"""MSK004: The token that ends a turn is not trained.

What: A turn ended because the policy sampled a stop token. Other tokens of the turn are under the policy
loss, and the stop is not.

Why it is silent: One token in a hundred is missing. Loss and reward look as usual, but no step reinforces
or discourages an ending. Answers drift to the limit, and the limit looks like the cause.

How it is measured: The rule looks up the last id of each turn that ended in a stop among the stop ids. If
it was sampled, and other tokens of the turn are under the loss, it must be too.

Healthy look-alikes: A turn without any trained token. A stop that a grammar forced: it was not a choice.
Scaffolding, under a mask that leaves it out. A cut turn has no stop. A sampler with stop strings ends
without a stop id: the rule reports a missing stop id only if no turn has one.

Fix: Build masks from lengths and origins, never from `ids != pad`: if the pad id is the stop id, that
comparison removes every stop. Let the sampler return the stop token with the others.

References: https://github.com/huggingface/trl/pull/6357, https://github.com/huggingface/trl/issues/1623
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.rules.msk002 import masked
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict
from truing.types.status import FinishReason
from truing.types.token import Excluded, Origin

STOPPED = (FinishReason.STOP, FinishReason.TOOL)
"""A turn that ends in a call ends with a stop token too."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim untrained stops: a stop is a sampled token like any other."""
    mask_N, sampled_N = step.tokens["policy_mask"], step.tokens["origin"] == Origin.SAMPLED
    wrong_N = torch.zeros(len(step.sample_of_token), dtype=torch.bool)
    structure_N = step.tokens.get("structure", wrong_N)
    stop_N = torch.isin(step.tokens["token_ids"], torch.tensor(step.setup.stop_ids or ()))
    stopped = without = 0  # sampled turns with the finish reason stop, and those that end in another id
    for _, row, part in step.slices():
        for turn in row.turns:
            last = part.start + turn.end - 1
            if turn.finish_reason not in STOPPED or turn.end <= turn.start or not sampled_N[last]:
                continue
            stopped += 1
            without += not stop_N[last]
            trained = bool(mask_N[part.start + turn.start : last].any())
            wrong_N[last] = bool(stop_N[last]) and trained and not mask_N[last] and not structure_N[last]
    if untrained := places(step, wrong_N, stopped):
        yield Claim(
            Verdict.PROVEN,
            f"{untrained.tokens} of {stopped} turns end in an untrained stop token,"
            " while the rest of the turn is trained",
            got=str(untrained),
            expected="the stop under the loss, like the tokens before it",
            **untrained.claim_fields,
            specificity=3,
        )
    if stopped and without == stopped:
        yield Claim(
            Verdict.SUSPECT,
            f"all {stopped} turns have the finish reason stop, and none has a stop token",
            expected="a stop id at the end of a turn, unless the sampler uses stop strings",
            remedy="check whether the sampler leaves the stop token out of its result",
        )


def example() -> Step:
    """The pad id is the stop id, and the mask leaves out padding."""
    healthy = example_step()
    lengths_N = torch.tensor(healthy.lengths)[healthy.sample_of_token]
    return masked(healthy, healthy.position_in_sample == lengths_N - 1, Excluded.STRUCTURE)


def forced_by_a_grammar() -> Step:
    """The grammar allowed the stop alone: it is not a choice, and is not trained."""
    healthy = example_step()
    lengths_N = torch.tensor(healthy.lengths)[healthy.sample_of_token]
    last_N = healthy.position_in_sample == lengths_N - 1
    origin_N = torch.where(last_N, Origin.FORCED, healthy.tokens["origin"]).to(torch.uint8)
    off = {
        name: healthy.tokens[name].masked_fill(last_N, torch.nan)
        for name in ("sampler_logprob", "old_logprob", "new_logprob")
    }
    kl_mask_N = healthy.tokens["kl_mask"] & ~last_N
    return masked(
        changed_step(healthy, origin=origin_N, kl_mask=kl_mask_N, tokens=off), last_N, Excluded.NOT_SAMPLED
    )


RULE = Rule(
    code="MSK004",
    name="stop-not-trained",
    kind="E",
    needs=("token_ids", "origin", "policy_mask", "sample.turns", "setup.stop_ids"),
    taints=("policy",),
    applies=lambda step: step.setup.stop_ids != (),
    judge=judge,
    example=example,
    lookalikes=(forced_by_a_grammar,),
)
