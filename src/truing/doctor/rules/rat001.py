"""RAT001: Missing old log-probabilities are filled in with zeros.

What: Tokens under the policy loss have an old log-probability of exactly 0, and their ratio is the
probability itself: exp(new − 0).

Why it is silent: A wrong key with a default of 0 raises no error. The ratio is then about exp(−entropy),
0.05 to 0.5, and looks like off-policy tokens. The clip cuts nearly every token with a negative advantage.

How it is measured: Sampled tokens with an old log-probability of exactly 0 whose log-probability by the
sampler or the trainer is not 0.

Healthy look-alikes: A log-probability of 0 if the token was the only possible one: under top-p 0.95, one
position in six of a small model. Then new and old are both 0.

Fix: Look up log-probabilities with a strict key, and raise an error on a missing one. A missing number is
NaN, never 0.

References: docs/control.md
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict

CERTAIN = 1e-3
"""Nats: the only possible token has a log-probability of 0 up to rounding."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim probabilities of exactly 1 that neither sampler nor trainer computed."""
    old_N, new_N = step.tokens["old_logprob"], step.tokens["new_logprob"]
    sampler_N = step.tokens.get("sampler_logprob", new_N)
    uncertain_N = (new_N.abs() > CERTAIN) & ~(sampler_N.abs() <= CERTAIN) | (sampler_N.abs() > CERTAIN)
    zero_N = step.tokens["policy_mask"] & (old_N == 0) & uncertain_N
    if zeros := places(step, zero_N, int(step.tokens["policy_mask"].sum())):
        ratio_N = new_N[zero_N].exp()
        ratio_N = ratio_N[~ratio_N.isnan()]
        median = float(ratio_N.median()) if len(ratio_N) else 1.0
        yield Claim(
            Verdict.PROVEN,
            f"{zeros.tokens} old log-probabilities are exactly 0 at uncertain tokens",
            got=f"{zeros}; their median ratio is {median:.3g}, the probability itself",
            expected="the sampler's log-probabilities",
            **zeros.claim_fields,
            specificity=3,
        )


def example() -> Step:
    """A failed lookup gives zeros."""
    healthy = example_step()
    return changed_step(healthy, old_logprob=torch.zeros_like(healthy.tokens["old_logprob"]))


def certain() -> Step:
    """Some tokens are the only possible ones: all log-probabilities are 0 there."""
    step = example_step()
    streams = {name: step.tokens[name].clone() for name in ("sampler_logprob", "old_logprob", "new_logprob")}
    for stream in streams.values():
        stream[5] = 0.0
    return changed_step(step, tokens=streams)


RULE = Rule(
    code="RAT001",
    name="old-logprob-zero-filled",
    kind="E",
    needs=("policy_mask", "old_logprob", "new_logprob"),
    taints=("policy",),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(certain,),
)
