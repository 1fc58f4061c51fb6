"""SMP001: The sampler recorded impossible log-probabilities.

What: A recorded log-probability is above 0, or that of a sampled token is minus infinity or missing, or a
token that no sampler sampled has one.

Why it is silent: Ratios use any recorded number. Above 0 they are too small. Minus infinity makes them
infinite and the clip hides it. A number at a prompt's token means that the sample is shifted, or was filled
in.

How it is measured: Each of the sampler's numbers, token by token, against the origin of the token. A
millionth of a nat above 0 is allowed: a softmax in float32 leaves a tenth of that.

Healthy look-alikes: Exactly 0 if a token was the only possible one: under top-p 0.95 one position in six,
and everywhere that a grammar leaves one id. Numbers at such forced tokens. None at prompts, templates,
tools and demonstrations.

Fix: Compute log-probabilities with a log-softmax in float32, at the sampled ids, after every processor. A
missing number is NaN. If numbers stand at other tokens, compare the mask with what the sampler returned.

References: docs/control.md, docs/notation.md
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Excluded, Origin
from truing.utils.format import with_count

ABOVE = 1e-6
"""Nats above 0 that rounding explains."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim impossible numbers as proof, missing ones as suspicion."""
    sampler_N, origin_N = step.tokens["sampler_logprob"], step.tokens["origin"]
    kept_N = torch.tensor(step.kept)[step.sample_of_token]
    sampled_N = origin_N == Origin.SAMPLED
    above_N = sampler_N > ABOVE
    if above := places(step, above_N):
        what = f"{above.tokens} recorded log-probabilities are above 0"
        yield _claim(Verdict.PROVEN, what, above, f"up to {float(sampler_N[above_N].max()):.3g}", "at most 0")
    if never := places(step, sampled_N & (sampler_N == -torch.inf)):
        what = f"{with_count(never.tokens, 'token was', 'tokens were')} sampled with a probability of 0"
        yield _claim(Verdict.PROVEN, what, never, "minus infinity", "a finite number")
    if missing := places(step, sampled_N & kept_N & sampler_N.isnan()):
        tokens = with_count(missing.tokens, "token was", "tokens were")
        what = f"{tokens} sampled without a recorded log-probability"
        yield _claim(Verdict.SUSPECT, what, missing, "NaN", "a number at every sampled token")
    elsewhere_N = ~sampled_N & (origin_N != Origin.FORCED) & ~sampler_N.isnan()
    if elsewhere := places(step, elsewhere_N):
        names = ", ".join(Origin(each).name for each in origin_N[elsewhere_N].unique().tolist())
        what = (
            f"{with_count(elsewhere.tokens, 'token')} of {names} with a log-probability, although not sampled"
        )
        got = "exactly 0" if bool((sampler_N[elsewhere_N] == 0).all()) else "numbers"
        yield _claim(Verdict.SUSPECT, what, elsewhere, got, "none")


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
    """Log-probabilities are computed in bfloat16, logit minus the logarithm of the sum."""
    healthy = example_step()
    sampler_N = healthy.tokens["sampler_logprob"].clone()
    sampler_N[6] = 0.03
    return with_token_gradients(changed_step(healthy, sampler_logprob=sampler_N, old_logprob=sampler_N))


def forced() -> Step:
    """A grammar leaves one id, with a log-probability of 0 and no choice."""
    step = example_step()
    origin_N, sampler_N = step.tokens["origin"].clone(), step.tokens["sampler_logprob"].clone()
    mask_N = step.tokens["policy_mask"].clone()
    origin_N[5], sampler_N[5], mask_N[5] = Origin.FORCED, 0.0, False
    why_N = torch.where(mask_N, Excluded.NO, Excluded.NOT_SAMPLED).to(torch.uint8)
    streams = {"origin": origin_N, "sampler_logprob": sampler_N, "policy_mask": mask_N, "kl_mask": mask_N}
    return with_token_gradients(
        changed_step(
            step,
            excluded=why_N,
            advantage=step.tokens["advantage"].masked_fill(~mask_N, torch.nan),
            tokens=streams,
        )
    )


RULE = Rule(
    code="SMP001",
    name="impossible-logprob",
    kind="E",
    needs=("sampler_logprob", "sampled"),
    taints=("policy",),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(forced,),
)
