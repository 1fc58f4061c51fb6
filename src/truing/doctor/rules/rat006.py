"""RAT006: The share of clipped tokens is not what the clip does.

What: The recorded share of clipped tokens differs from the one that ratios and advantages come to: most
often it counts all ratios outside the band, whichever way their advantage pulls.

Why it is silent: It is a number that is shown, and nothing is trained with it. But it is read: as a sign
that the learning rate is too high, or that the policy has stopped to learn.

How it is measured: The clip takes the gradient away where A > 0 and r > 1 + high, or A < 0 and r < 1 − low,
and nowhere else. The share is counted again over all policy tokens that have a ratio, or an advantage of 0,
with one ratio per token or per sequence as declared.

Healthy look-alikes: Shares of 40 % with a ratio per sequence, whose band is a thousand times narrower. A
share of 0 on-policy. Other trainers divide by other tokens: of theirs only the wrong definition is told,
where it fits exactly.

Fix: Count with the sign of the advantage. The weights are as they should be.

References: https://arxiv.org/abs/1707.06347, https://arxiv.org/abs/2507.18071,
https://github.com/huggingface/trl/issues/3120
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, with_token_gradients
from truing.doctor.rule import Rule, has_policy_loss
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-6
"""One token of a million."""


class Measured(NamedTuple):
    """The share as it is told, as it is, and as the wrong definition has it."""

    told: float
    share: float  # NaN where no token has a ratio
    outside: float  # of the band, whatever the advantage
    tokens: int
    ours: bool  # whether it is told by the definition of docs/metrics.md


def measure(step: Step) -> Measured:
    """Count clipped tokens once more."""
    mask_N, advantage_N = step.tokens["policy_mask"], step.tokens["advantage"].double()
    ratio_N = _ratio(step)
    known_N = mask_N & ~ratio_N.isnan()
    counted_N = known_N | (mask_N & (advantage_N == 0))
    low, high = step.setup.clip_low, step.setup.clip_high
    assert low is not None
    assert high is not None
    above_N, below_N = ratio_N > 1 + high, ratio_N < 1 - low
    clipped_N = (above_N & (advantage_N > 0)) | (below_N & (advantage_N < 0))
    told = step.numbers["clip/clipped_share"]
    if not known_N.any():
        return Measured(told, math.nan, math.nan, 0, step.setup.trainer == "truing")
    return Measured(
        told,
        float(clipped_N[counted_N].double().mean()),
        float((above_N | below_N)[known_N].double().mean()),
        int(counted_N.sum()),
        step.setup.trainer == "truing",
    )


def _ratio(step: Step) -> Tensor:
    """The ratio of each policy token, or of its sequence: [N] float64, NaN where it is not known."""
    log_N = step.tokens["new_logprob"].double() - step.tokens["old_logprob"].double()
    log_N = log_N.masked_fill(~step.tokens["policy_mask"], torch.nan)
    if step.setup.ratio == "sequence":
        known_N = ~log_N.isnan()
        zero_B = torch.zeros(len(step.rows), dtype=torch.float64)
        sum_B = zero_B.index_add(0, step.row_of_token, log_N.nan_to_num())
        count_B = zero_B.index_add(0, step.row_of_token, known_N.double())
        log_N = torch.where(known_N, (sum_B / count_B.clamp(min=1))[step.row_of_token], torch.nan)
    return log_N.exp()


def judge(found: Measured) -> Iterator[Claim]:
    """The definition has one value."""
    if math.isnan(found.share) or abs(found.told - found.share) <= ROUNDING:
        return
    unsigned = abs(found.told - found.outside) <= ROUNDING
    if found.ours or unsigned:
        reading = ": it is the share outside the band, whatever the advantage" if unsigned else ""
        yield Claim(
            Verdict.PROVEN,
            f"the share of clipped tokens is told wrong{reading}",
            got=f"{found.told:.6g}",
            expected=f"{found.share:.6g} of {found.tokens} tokens",
            specificity=1.5,
        )


def moved() -> Step:
    """A second update, whose ratios are spread to both sides of the band."""
    step = example_step(setup={"inner_steps": 2})
    noise_N = 0.4 * torch.randn(len(step.row_of_token), generator=torch.Generator().manual_seed(1))
    rows = {index: {"inner_step": 1} for index in range(len(step.rows))}
    step = changed_step(step, rows=rows, new_logprob=step.tokens["old_logprob"] + noise_N)
    return with_token_gradients(changed_step(step, numbers={"clip/clipped_share": 0.0}))


def example() -> Step:
    """Every ratio outside the band is counted."""
    step = moved()
    return changed_step(step, numbers={"clip/clipped_share": measure(step).outside})


def counted() -> Step:
    """The same step, counted with the sign of the advantage."""
    step = moved()
    return changed_step(step, numbers={"clip/clipped_share": measure(step).share})


RULE = Rule(
    code="RAT006",
    name="clip-share-recomputed",
    kind="E",
    needs=(
        "numbers.clip/clipped_share",
        "new_logprob",
        "old_logprob",
        "advantage",
        "policy_mask",
        "setup.surrogate",
        "setup.clip_low",
        "setup.clip_high",
    ),
    taints=("metrics",),
    applies=lambda step: has_policy_loss(step) and step.setup.surrogate in ("clip", None),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(counted,),
)
