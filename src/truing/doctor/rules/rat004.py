"""RAT004: Old log-probabilities lie beside the tokens that they are of.

What: The old log-probability that stands at a token is that of the token before it, or after it. Each ratio
compares two different tokens.

Why it is silent: Shapes fit, and the median ratio is near 1, for neighbours are about as likely. Their mean
is far above 1, for a few quotients are huge; the clip hides those, and what is left looks like a policy
that moves fast.

How it is measured: New log-probabilities are laid over the old ones with a shift of −2 to 2 tokens, within
each row, at tokens that can tell the shifts apart: two new numbers that differ. They must fit best without
a shift. It is proven where a shift fits nearly exactly at nine tokens of ten, and none at all does not.

Healthy look-alikes: Ratios that are off 1 at a second update: they fit best in place all the same.
Log-probabilities of 0, or of one value throughout, which fit everywhere and tell nothing.

Fix: Shift logits and ids against each other in one place, and name what the result is aligned with. A
log-probability at index t should be of token t, in every tensor.

References: docs/notation.md, https://github.com/huggingface/trl/issues/4159
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, with_token_gradients
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

NEAR, DIFFERENT = 1e-3, 1e-2
"""Nats: what counts as the same number, and as another."""


class Measured(NamedTuple):
    """What the best shift other than 0 makes of the tokens that can tell."""

    shift: int
    tokens: int  # that can tell
    fits: float  # share at which the shifted numbers are the same
    in_place: float  # share at which they are the same without a shift
    left: float  # mean difference under the shift, of that without
    first: bool  # whether all numbers are of a first update, before anything moved
    where: Places


def measure(step: Step) -> Measured:
    """Try all shifts; the best is the one that fits most tokens."""
    new_N, old_N = step.tokens["new_logprob"].double(), step.tokens["old_logprob"].double()
    kept_N = torch.tensor([row.kept for row in step.rows])[step.row_of_token]
    first = all(row.inner_step <= 0 for row in step.rows)
    tried = []
    for shift in (-2, -1, 1, 2):
        other_N = torch.roll(new_N, -shift)
        tells_N = ~old_N.isnan() & ((other_N - new_N).abs() > DIFFERENT)  # not where one is NaN
        tells_N &= (torch.roll(step.row_of_token, -shift) == step.row_of_token) & kept_N
        there_N, here_N = (other_N - old_N).abs(), (new_N - old_N).abs()
        tokens = int(tells_N.sum())
        if tokens:
            shares = (float((x[tells_N] <= NEAR).double().mean()) for x in (there_N, here_N))
            left = float(there_N[tells_N].mean() / here_N[tells_N].mean().clamp(min=1e-12))
            tried.append(
                Measured(shift, tokens, *shares, left, first, places(step, tells_N & (here_N > NEAR)))
            )
    nothing = Measured(0, 0, 0.0, 1.0, 1.0, first, places(step, torch.zeros_like(kept_N)))
    return max(tried, key=lambda found: (found.fits, -found.left), default=nothing)


def judge(found: Measured) -> Iterator[Claim]:
    """A near-exact fit elsewhere and none here is no coincidence; a much better one is worth a look."""
    exact = found.tokens >= 32 and found.fits >= 0.9 and found.in_place <= 0.5
    if exact or (found.first and found.tokens >= 64 and found.left < 0.2):
        side = "before" if found.shift > 0 else "after"  # the number at t is of the token at t + shift
        yield Claim(
            Verdict.PROVEN if exact else Verdict.SUSPECT,
            f"old log-probabilities stand {abs(found.shift)} token{'s' * (abs(found.shift) > 1)} {side} the"
            " token that they are of",
            got=f"{found.fits:.0%} of {found.tokens} fit with that shift, {found.in_place:.0%} in place",
            expected="the best fit without a shift",
            **found.where.claim_fields,
            specificity=3,
        )


def example() -> Step:
    """What the sampler recorded was written one place too early."""
    healthy = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    return with_token_gradients(
        changed_step(healthy, old_logprob=torch.roll(healthy.tokens["old_logprob"], -1))
    )


def certain() -> Step:
    """All tokens have one log-probability: every shift fits."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    flat_N = torch.where(step.tokens["policy_mask"], -0.693, torch.nan)
    rows = {index: {"inner_step": 1} for index in range(16)}
    streams = {"old_logprob": flat_N, "sampler_logprob": flat_N, "new_logprob": flat_N * 1.05}
    return with_token_gradients(changed_step(step, rows=rows, **streams))


RULE = Rule(
    code="RAT004",
    name="old-logprob-shifted",
    kind="E",
    needs=("old_logprob", "new_logprob"),
    taints=("policy",),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(certain,),
)
