"""SMP001: The sampler recorded log-probabilities that no probability has.

What: A recorded log-probability is above 0, or that of a token that was drawn is minus infinity or missing,
or there is one at a token that nobody drew.

Why it is silent: Ratios are made of whatever stands there. Above 0 they are too small, minus infinity makes
them infinite and the clip hides it, and a number at a prompt's token says that the row is shifted, or was
filled in.

How it is measured: Each number of the sampler's, token by token, against where the token came from. A
millionth of a nat above 0 is allowed: a softmax in float32 leaves a tenth of that.

Healthy look-alikes: Exactly 0 where a token was the only possible one: under top-p 0.95 one position in
six, and wherever a grammar leaves one id. Numbers at such forced tokens. None at prompts, templates, tools
and demonstrations.

Fix: Take log-probabilities from a log-softmax in float32, at the ids that were drawn, after every
processor. What was not recorded is NaN, and nothing else.

References: docs/control.md, docs/notation.md
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, with_token_gradients
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Excluded, Origin
from truing.utils.format import with_count

ABOVE = 1e-6
"""Nats above 0 that rounding explains."""


class Measured(NamedTuple):
    """Numbers that cannot be, those that are missing, and those that nobody drew."""

    above: Places
    largest: float
    never: Places  # drawn with a probability of 0
    missing: Places
    elsewhere: Places
    origins: str  # of those
    filled: bool  # whether all of those are exactly 0


def measure(step: Step) -> Measured:
    """Where each kind is."""
    said_N, origin_N = step.tokens["sampler_logprob"], step.tokens["origin"]
    kept_N = torch.tensor([row.kept for row in step.rows])[step.row_of_token]
    sampled_N = origin_N == Origin.SAMPLED
    elsewhere_N = ~sampled_N & (origin_N != Origin.FORCED) & ~said_N.isnan()
    names = ", ".join(Origin(each).name for each in origin_N[elsewhere_N].unique().tolist())
    looked_at = int(sampled_N.sum())
    above_N = said_N > ABOVE
    return Measured(
        places(step, above_N, looked_at),
        float(said_N[above_N].max()) if above_N.any() else 0.0,
        places(step, sampled_N & (said_N == -torch.inf), looked_at),
        places(step, sampled_N & kept_N & said_N.isnan(), looked_at),
        places(step, elsewhere_N, looked_at),
        names,
        bool((said_N[elsewhere_N] == 0).all()),
    )


def judge(found: Measured) -> Iterator[Claim]:
    """A probability is above 0 and at most 1; what was not recorded may have another reason."""
    if found.above:
        what = f"{found.above.tokens} recorded log-probabilities are above 0"
        yield _claim(Verdict.PROVEN, what, found.above, f"up to {found.largest:.3g}", "at most 0")
    if found.never:
        what = f"{with_count(found.never.tokens, 'token was', 'tokens were')} drawn with a probability of 0"
        yield _claim(Verdict.PROVEN, what, found.never, "minus infinity", "a finite number")
    if found.missing:
        tokens = with_count(found.missing.tokens, "token was", "tokens were")
        what = f"{tokens} drawn, and no log-probability was recorded"
        yield _claim(Verdict.SUSPECT, what, found.missing, "NaN", "a number at every sampled token")
    if found.elsewhere:
        tokens = with_count(found.elsewhere.tokens, "token")
        what = f"{tokens} of {found.origins} with a log-probability, and nobody drew any"
        got = "exactly 0" if found.filled else "numbers"
        yield _claim(Verdict.SUSPECT, what, found.elsewhere, got, "none")


def _claim(verdict: Verdict, what: str, where: Places, got: str, expected: str) -> Claim:
    return Claim(
        verdict,
        what,
        got=f"{got}; {where}",
        expected=expected,
        **where.claim_fields,
        specificity=2,
    )


def example() -> Step:
    """Log-probabilities were taken in bfloat16, logit less the logarithm of the sum."""
    healthy = example_step()
    said_N = healthy.tokens["sampler_logprob"].clone()
    said_N[6] = 0.03
    return with_token_gradients(changed_step(healthy, sampler_logprob=said_N, old_logprob=said_N))


def forced() -> Step:
    """A grammar left one id, whose log-probability is 0, and nobody's choice."""
    step = example_step()
    origin_N, said_N = step.tokens["origin"].clone(), step.tokens["sampler_logprob"].clone()
    mask_N = step.tokens["policy_mask"].clone()
    origin_N[5], said_N[5], mask_N[5] = Origin.FORCED, 0.0, False
    why_N = torch.where(mask_N, Excluded.NO, Excluded.NOT_SAMPLED).to(torch.uint8)
    streams = {"origin": origin_N, "sampler_logprob": said_N, "policy_mask": mask_N, "kl_mask": mask_N}
    return with_token_gradients(
        changed_step(
            step,
            excluded=why_N,
            advantage=step.tokens["advantage"].masked_fill(~mask_N, torch.nan),
            **streams,
        )
    )


RULE = Rule(
    code="SMP001",
    name="impossible-logprob",
    kind="E",
    needs=("sampler_logprob", "origin"),
    taints=("policy",),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(forced,),
)
