"""RAT007: Old log-probabilities differ from those of sampling.

What: The run declares that the sampling policy makes the first optimizer step, and the old log-probabilities
differ from the sampler's. The clip holds the policy near another one.

Why it is silent: Recomputed numbers look better than recorded ones: ratios are then exactly 1, for any
sampling distribution. A temperature, a stale sampler or a wrong mask no longer shows in any ratio.

How it is measured: The rule compares old and recorded log-probabilities bit for bit at sampled tokens.
Truing uses the recorded ones, so there each difference is a fault. Other trainers may recompute them before
the first optimizer step, which is legal: for those the rule reports only a difference larger than that of any
engine.

Healthy look-alikes: Old log-probabilities that another trainer recomputes before the first optimizer step,
near the sampler's. The rule does not apply with Truing's correction, which has both numbers and weighs by
their quotient. Beside TRL, whose correction is on by default, it does.

Fix: Use the sampler's numbers as the old policy, or recompute them once, before the first optimizer step, and
weigh tokens by old ÷ sampler. Never recompute them between the optimizer steps of one batch: RAT003 finds
that.

References: docs/control.md, https://arxiv.org/abs/2510.26788,
https://github.com/huggingface/trl/issues/6789
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.kl import difference_sizes
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin

MEDIAN, K3 = 0.05, 0.01
"""Nats: an engine in bfloat16 has a median of 0.03 and a k3 of 0.001."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference in Truing, a large one in other trainers."""
    old_N, sampler_N = step.tokens["old_logprob"], step.tokens["sampler_logprob"]
    compared_N = torch.tensor(step.kept)[step.sample_of_token] & ~old_N.isnan() & ~sampler_N.isnan()
    if "origin" in step.tokens:
        compared_N &= step.tokens["origin"] == Origin.SAMPLED
    apart_n = (old_N - sampler_N)[compared_N].double()
    if not (differing := places(step, compared_N & (old_N != sampler_N), len(apart_n))):
        return
    (median, largest, k3), ours = difference_sizes(apart_n), step.setup.trainer == "truing"
    new_N = step.tokens.get("new_logprob", torch.full_like(old_N, torch.nan))
    scored_N = compared_N & ~new_N.isnan()
    recomputed = bool(scored_N.any() and (old_N == new_N)[scored_N].all())
    if ours or median > MEDIAN or k3 > K3:
        source = "; they are the trainer's own of this optimizer step" if recomputed else ""
        yield Claim(
            Verdict.PROVEN if ours else Verdict.SUSPECT,
            f"{differing.tokens} of {differing.compared} old log-probabilities differ from"
            f" those recorded in sampling{source}",
            got=f"differences of up to {largest:.3g} nats, median {median:.2g}, k3 {k3:.2g}",
            expected="the sampler's log-probabilities"
            if ours
            else "a forward of the same weights, under the same distribution",
            **differing.claim_fields,
            specificity=3 if recomputed else 1,  # which MSK003 sees as another gradient
        )


def example() -> Step:
    """Old log-probabilities come from a forward of the trainer, without a declared correction."""
    healthy = example_step()
    noise_N = 1e-4 * torch.randn(len(healthy.sample_of_token), generator=torch.Generator().manual_seed(0))
    computed_N = healthy.tokens["old_logprob"] + noise_N
    return changed_step(healthy, old_logprob=computed_N, new_logprob=computed_N)


def elsewhere() -> Step:
    """Another trainer recomputes them before its first optimizer step."""
    return changed_step(example(), setup={"trainer": "trl"})


RULE = Rule(
    code="RAT007",
    name="old-not-as-drawn",
    kind="E",
    needs=("old_logprob", "sampler_logprob", "setup.on_policy"),
    taints=("policy",),
    applies=lambda step: (
        is_sampled(step) and step.setup.algo not in ("sft", "rft") and step.setup.on_policy is not False
    ),
    judge=judge,
    example=example,
    lookalikes=(elsewhere,),
)
