"""RAT004: Old log-probabilities are shifted against their tokens.

What: The old log-probability at a token is that of the token before it, or after it. Each ratio compares
two different tokens.

Why it is silent: Shapes fit, and the median ratio is near 1, since neighbours are about as likely. The mean
is far above 1, since a few quotients are huge. The clip hides those, and the rest looks like a policy that
moves fast.

How it is measured: The rule compares new log-probabilities with old ones at a shift of −2 to 2 tokens,
within each sample, at tokens that distinguish the shifts: two different new numbers. The best fit must be
without a shift. It is proven if a shift fits nearly exactly at nine tokens of ten, and no shift does not.

Healthy look-alikes: Ratios other than 1 at a second optimizer step: the best fit is still in place.
Log-probabilities of 0, or of one value throughout, which fit everywhere and show nothing.

Fix: Shift logits and ids against each other in one place, and name the alignment of the result. A
log-probability at index t should be of token t, in every tensor.

References: docs/notation.md, https://github.com/huggingface/trl/issues/4159
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

NEAR, DIFFERENT = 1e-3, 1e-2
"""Nats: the largest difference of equal numbers, and the smallest of different ones."""


class Measured(NamedTuple):
    """The fit of the best shift other than 0, at tokens that distinguish shifts."""

    shift: int
    tokens: int  # that distinguish shifts
    fits: float  # share with equal numbers under the shift
    in_place: float  # share with equal numbers without a shift
    left: float  # mean difference under the shift ÷ that without
    first: bool  # whether all numbers are of a first optimizer step, before any weight moved
    where: Places


def measure(step: Step) -> Measured:
    """Try all shifts; the best one fits most tokens."""
    new_N, old_N = step.tokens["new_logprob"].double(), step.tokens["old_logprob"].double()
    kept_N = torch.tensor(step.kept)[step.sample_of_token]
    first = bool((step.optimizer_step_of_sample <= 0).all())
    tried = []
    for shift in (-2, -1, 1, 2):
        other_N = torch.roll(new_N, -shift)
        informative_N = ~old_N.isnan() & ((other_N - new_N).abs() > DIFFERENT)  # false for NaN
        informative_N &= (torch.roll(step.sample_of_token, -shift) == step.sample_of_token) & kept_N
        there_N, here_N = (other_N - old_N).abs(), (new_N - old_N).abs()
        tokens = int(informative_N.sum())
        if tokens:
            fits, in_place = (float((x[informative_N] <= NEAR).double().mean()) for x in (there_N, here_N))
            left = float(there_N[informative_N].mean() / here_N[informative_N].mean().clamp(min=1e-12))
            tried.append(
                Measured(
                    shift,
                    tokens,
                    fits,
                    in_place,
                    left,
                    first,
                    places(step, informative_N & (here_N > NEAR)),
                )
            )
    nothing = Measured(0, 0, 0.0, 1.0, 1.0, first, places(step, torch.zeros_like(kept_N)))
    return max(tried, key=lambda shifted: (shifted.fits, -shifted.left), default=nothing)


def judge(step: Step) -> Iterator[Claim]:
    """Claim a near-exact fit under a shift as proof, a much better one as suspicion."""
    measured = measure(step)
    exact = measured.tokens >= 32 and measured.fits >= 0.9 and measured.in_place <= 0.5
    if exact or (measured.first and measured.tokens >= 64 and measured.left < 0.2):
        side = "before" if measured.shift > 0 else "after"  # the number at t is of the token at t + shift
        yield Claim(
            Verdict.PROVEN if exact else Verdict.SUSPECT,
            f"old log-probabilities are shifted: {abs(measured.shift)}"
            f" token{'s' * (abs(measured.shift) > 1)} {side} their"
            " token",
            got=f"{measured.fits:.0%} of {measured.tokens} fit with that shift, {measured.in_place:.0%} in"
            " place",
            expected="the best fit without a shift",
            **measured.where.claim_fields,
            specificity=3,
        )


def example() -> Step:
    """The sampler's numbers are stored one place too early."""
    healthy = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    return with_token_gradients(
        changed_step(healthy, old_logprob=torch.roll(healthy.tokens["old_logprob"], -1))
    )


def certain() -> Step:
    """All tokens have one log-probability: every shift fits."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    flat_N = torch.where(step.tokens["policy_mask"], -0.693, torch.nan)
    second = dict.fromkeys(range(16), 1)
    streams = {"old_logprob": flat_N, "sampler_logprob": flat_N, "new_logprob": flat_N * 1.05}
    return with_token_gradients(with_optimizer_steps(changed_step(step, tokens=streams), second))


RULE = Rule(
    code="RAT004",
    name="old-logprob-shifted",
    kind="E",
    needs=("old_logprob", "new_logprob"),
    taints=("policy",),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(certain,),
)
