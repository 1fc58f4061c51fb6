"""RAT006: The share of clipped tokens differs from the clip.

What: The recorded share of clipped tokens differs from a recomputation from ratios and advantages. Most
often it counts all ratios outside the band, whatever the sign of the advantage.

Why it is silent: It is a reported number, and no optimizer step uses it. But users read it as a sign of a
high learning rate, or of a policy that has stopped learning.

How it is measured: The clip removes the gradient if A > 0 and r > 1 + high, or A < 0 and r < 1 − low, and
nowhere else. The rule counts again over all policy tokens that have a ratio, or an advantage of 0, with one
ratio per token or per sequence as declared.

Healthy look-alikes: Shares of 40 % with a ratio per sequence, whose band is a thousand times narrower. A
share of 0 on-policy. Other trainers divide by other tokens: the rule reports only the wrong definition, and
only on an exact fit.

Fix: Count with the sign of the advantage. The weights are right.

References: https://arxiv.org/abs/1707.06347, https://arxiv.org/abs/2507.18071,
https://github.com/huggingface/trl/issues/3120
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule, has_policy_loss
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-6
"""One token of a million."""


def _ratio(step: Step) -> Tensor:
    """Return the ratio of each policy token, or of its sequence: [N] float64, NaN if unknown."""
    log_N = step.tokens["new_logprob"].double() - step.tokens["old_logprob"].double()
    log_N = log_N.masked_fill(~step.tokens["policy_mask"], torch.nan)
    if step.setup.ratio == "sequence":
        known_N = ~log_N.isnan()
        zero_B = torch.zeros(len(step.samples), dtype=torch.float64)
        sum_B = zero_B.index_add(0, step.sample_of_token, log_N.nan_to_num())
        count_B = zero_B.index_add(0, step.sample_of_token, known_N.double())
        log_N = torch.where(known_N, (sum_B / count_B.clamp(min=1))[step.sample_of_token], torch.nan)
    return log_N.exp()


class Shares(NamedTuple):
    """The share of clipped tokens as recomputed, and by the wrong definition."""

    clipped: float  # NaN if no token has a ratio
    outside: float  # of the band, whatever the advantage
    tokens: int


def shares(step: Step) -> Shares:
    """Recount clipped tokens."""
    mask_N, advantage_N = step.tokens["policy_mask"], step.tokens["advantage"].double()
    ratio_N = _ratio(step)
    known_N = mask_N & ~ratio_N.isnan()
    if not known_N.any():
        return Shares(math.nan, math.nan, 0)
    counted_N = known_N | (mask_N & (advantage_N == 0))
    low, high = step.setup.clip_low, step.setup.clip_high
    assert low is not None
    assert high is not None
    above_N, below_N = ratio_N > 1 + high, ratio_N < 1 - low
    clipped_N = (above_N & (advantage_N > 0)) | (below_N & (advantage_N < 0))
    return Shares(
        float(clipped_N[counted_N].double().mean()),
        float((above_N | below_N)[known_N].double().mean()),
        int(counted_N.sum()),
    )


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference: the definition has one value."""
    share, reported = shares(step), step.metrics["clip/clipped_share"]
    if math.isnan(share.clipped) or abs(reported - share.clipped) <= ROUNDING:
        return
    unsigned = abs(reported - share.outside) <= ROUNDING
    # Truing follows the definition of docs/metrics.md
    if unsigned or step.setup.trainer == "truing":
        reading = ": it is the share outside the band, whatever the advantage" if unsigned else ""
        yield Claim(
            Verdict.PROVEN,
            f"the reported share of clipped tokens is wrong{reading}",
            got=f"{reported:.6g}",
            expected=f"{share.clipped:.6g} of {share.tokens} tokens",
            specificity=1.5,
        )


def moved() -> Step:
    """Return a second optimizer step with ratios on both sides of the band."""
    step = example_step(setup={"inner_steps": 2})
    noise_N = 0.4 * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(1))
    later = dict.fromkeys(range(len(step.samples)), 1)
    step = with_optimizer_steps(changed_step(step, new_logprob=step.tokens["old_logprob"] + noise_N), later)
    return with_token_gradients(changed_step(step, metrics={"clip/clipped_share": 0.0}))


def example() -> Step:
    """The metric counts every ratio outside the band."""
    step = moved()
    return changed_step(step, metrics={"clip/clipped_share": shares(step).outside})


def counted() -> Step:
    """The same step, counted with the sign of the advantage."""
    step = moved()
    return changed_step(step, metrics={"clip/clipped_share": shares(step).clipped})


RULE = Rule(
    code="RAT006",
    name="clip-share-recomputed",
    kind="E",
    needs=(
        "metrics.clip/clipped_share",
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
    judge=judge,
    example=example,
    lookalikes=(counted,),
)
