"""RAT007: Old log-probabilities are not those that the tokens were drawn with.

What: The run declares that its first update is by the policy that drew, and the old log-probabilities are
not what the sampler recorded. The clip holds the policy near to another one.

Why it is silent: Numbers that a forward of the trainer made look better than recorded ones: ratios are then
1 exactly, whatever distribution the tokens were drawn from. A temperature, a stale sampler or a wrong mask
no longer shows in any ratio.

How it is measured: Old and recorded log-probabilities are compared bit for bit at sampled tokens. Truing
takes the recorded ones, so there each difference is a fault. Other trainers may compute them anew before
the first update, which is legal: of theirs only a difference that no engine makes is told.

Healthy look-alikes: Old log-probabilities computed anew before the first update, in another trainer, that
are near the sampler's. A declared correction, which has both numbers and weighs by their quotient: then the
rule is not asked.

Fix: Use what the sampler recorded as the old policy, or compute it anew once, before the first update, and
weigh tokens by old ÷ sampler. Never compute it anew between the updates of one batch: RAT003 finds that.

References: docs/control.md, https://arxiv.org/abs/2510.26788,
https://github.com/huggingface/trl/issues/6789
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin

MEDIAN, K3 = 0.05, 0.01
"""Nats: an engine in bfloat16 has a median of 0.03 and a k3 of 0.001."""


class Measured(NamedTuple):
    """Where old is not what was recorded, and by how much."""

    differing: Places
    median: float  # over all tokens that were compared
    largest: float
    k3: float
    recomputed: bool  # whether old is the trainer's own number of the first update
    ours: bool


def measure(step: Step) -> Measured:
    """Bit for bit, and in nats."""
    old_N, said_N = step.tokens["old_logprob"], step.tokens["sampler_logprob"]
    kept_N = torch.tensor([row.kept for row in step.rows])[step.row_of_token]
    compared_N = kept_N & ~old_N.isnan() & ~said_N.isnan()
    if "origin" in step.tokens:
        compared_N &= step.tokens["origin"] == Origin.SAMPLED
    apart_n = (old_N - said_N)[compared_N].double()
    new_N = step.tokens.get("new_logprob", torch.full_like(old_N, torch.nan))
    scored_N = compared_N & ~new_N.isnan()
    where = places(step, compared_N & (old_N != said_N), len(apart_n))
    sizes = (0.0, 0.0, 0.0)
    if len(apart_n):
        k3 = (torch.expm1(apart_n) - apart_n).mean()
        sizes = float(apart_n.abs().median()), float(apart_n.abs().max()), float(k3)
    same = bool(scored_N.any() and (old_N == new_N)[scored_N].all())
    return Measured(where, *sizes, same, step.setup.trainer == "truing")


def judge(found: Measured) -> Iterator[Claim]:
    """Ours are recorded ones, bit for bit; others' must at least be near."""
    far = found.median > MEDIAN or found.k3 > K3
    if found.differing and (found.ours or far):
        source = "; they are the trainer's own of this very update" if found.recomputed else ""
        yield Claim(
            Verdict.PROVEN if found.ours else Verdict.SUSPECT,
            f"{found.differing.tokens} of {found.differing.compared} old log-probabilities are not those"
            f" that were recorded as the tokens were drawn{source}",
            got=f"differences of up to {found.largest:.3g} nats, median {found.median:.2g},"
            f" k3 {found.k3:.2g}",
            expected="what the sampler recorded"
            if found.ours
            else "a forward of the same weights, under the same distribution",
            **found.differing.claim_fields,
            specificity=1,
        )


def example() -> Step:
    """Old log-probabilities come from a forward of the trainer, and a correction was not declared."""
    healthy = example_step()
    noise_N = 1e-4 * torch.randn(len(healthy.row_of_token), generator=torch.Generator().manual_seed(0))
    computed_N = healthy.tokens["old_logprob"] + noise_N
    return changed_step(healthy, old_logprob=computed_N, new_logprob=computed_N)


def elsewhere() -> Step:
    """Another trainer computes them anew before its first update."""
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
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(elsewhere,),
)
