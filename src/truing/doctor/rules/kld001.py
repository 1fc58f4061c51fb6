"""KLD001: A reported KL differs from the recorded log-probabilities.

What: A metric of the distance from the reference differs from a recomputation from the policy's and the
reference's log-probabilities, or is negative although it cannot be.

Why it is silent: Any small number looks like a KL. With the sign exchanged it falls as the policy leaves
the reference. A sum in place of a mean grows with the answers. exp(x) − x − 1 in float32 is negative near
0. A target or a cap on this number controls something else.

How it is measured: k1 = log π − log π_ref, k2 = its square ÷ 2 and k3 = expm1(x) − x with x = −k1 are
averaged over policy tokens and over all sampled tokens, in float64. The rule also tries any difference with
policy and reference exchanged. k2 and k3 are never below 0, under any definition.

Healthy look-alikes: k1 below 0 in a single step: its expectation is a KL, and one sample may be negative.
k3 far above k1 if one token has become very likely for the reference. Other trainers average in other ways:
the rule reports only an exact exchange, or an impossible number.

Fix: Compute log π − log π_ref at tokens that π sampled, with one set of sampling parameters, with `expm1`.
State whether the metric is a mean over tokens or a sum over sequences.

References: http://joschu.net/blog/kl-approx.html, https://arxiv.org/abs/2512.21852
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import with_token_gradients
from truing.doctor.oracle.kl import kl_estimates
from truing.doctor.rule import Rule, has_reference
from truing.doctor.rules.ref002 import compared
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin

ROUNDING = 1e-6
"""Of the mean absolute value of the averaged numbers."""

BELOW = -1e-6
"""Nats: rounding leaves at least that much, under any formula."""


class ReportedKl(NamedTuple):
    """A metric as reported, as recomputed, and with policy and reference exchanged."""

    shown: float
    value: float
    exchanged: float
    scale: float  # the mean absolute value of the averaged numbers
    square: bool  # whether it is never below 0


def recomputed(step: Step) -> Mapping[str, ReportedKl]:
    """Recompute each mean, over the tokens that docs/metrics.md names."""
    k1_N = step.tokens["new_logprob"].double() - step.tokens["ref_logprob"].double()
    origin_N, mask_N = step.tokens.get("origin"), step.tokens["policy_mask"]
    sampled_N = mask_N if origin_N is None else origin_N == Origin.SAMPLED
    metrics: dict[str, ReportedKl] = {}
    for use, chosen_N in (("kl_trained", mask_N), ("kl_all", sampled_N)):
        k1_n = k1_N[chosen_N & ~k1_N.isnan()]
        if len(k1_n):
            for name in ("k1", "k2", "k3"):
                _note(metrics, step, f"{use}/{name}", name, k1_n, len(k1_n))
    here_N = sampled_N & ~k1_N.isnan()
    if here_N.any():
        _note(metrics, step, "kl_sequence/k1", "k1", k1_N[here_N], len(step.sample_of_token[here_N].unique()))
    return metrics


def _note(
    metrics: dict[str, ReportedKl], step: Step, metric: str, name: str, k1_n: Tensor, count: int
) -> None:
    """Add a metric, if reported: the sum of an estimator over tokens, divided by a count."""
    if metric in step.metrics:
        each_n, other_n = (kl_estimates(x_n)[name] for x_n in (k1_n, -k1_n))
        value, exchanged, scale = (float(x.sum()) / count for x in (each_n, other_n, each_n.abs()))
        metrics[metric] = ReportedKl(step.metrics[metric], value, exchanged, scale, name != "k1")


def judge(step: Step) -> Iterator[Claim]:
    """Claim a wrong value or an impossible sign."""
    ours = step.setup.trainer == "truing"  # and follows the definitions of docs/metrics.md
    for metric, reported in recomputed(step).items():
        size = ROUNDING * max(reported.scale, abs(reported.value), 1e-9)
        wrong = not abs(reported.shown - reported.value) <= size
        exchanged = wrong and abs(reported.shown - reported.exchanged) <= size
        impossible = reported.square and reported.shown < BELOW
        if impossible or (wrong and (ours or exchanged)):
            why = (
                ": policy and reference are exchanged"
                if exchanged
                else ": it is below 0, which is impossible"
                if impossible
                else ""
            )
            yield Claim(
                Verdict.PROVEN,
                f"{metric} differs from the KL of the recorded log-probabilities{why}",
                got=f"{reported.shown:.6g}" if math.isfinite(reported.shown) else str(reported.shown),
                expected=f"{reported.value:.6g}",
                specificity=1.5 if exchanged else 1.2,
            )
            return  # the other metrics use the same numbers


def with_kl() -> Step:
    """Return a step whose policy has left the reference, and that reports its KL."""
    step = compared()
    noise_N = 0.2 * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(0))
    step = changed_step(step, ref_logprob=step.tokens["new_logprob"] + noise_N)
    names = [f"{use}/{k}" for use in ("kl_trained", "kl_all") for k in ("k1", "k2", "k3")]
    blank = changed_step(step, metrics=dict.fromkeys([*names, "kl_sequence/k1"], 0.0))
    step = changed_step(blank, metrics={name: reported.value for name, reported in recomputed(blank).items()})
    return with_token_gradients(replace(step, step=3))


def example() -> Step:
    """The metric subtracts in the wrong order."""
    step = with_kl()
    exchanged = {name: reported.exchanged for name, reported in recomputed(step).items()}
    return changed_step(step, metrics=exchanged)


def elsewhere() -> Step:
    """Another trainer averages over sequences first."""
    step = with_kl()
    return changed_step(
        step, setup={"trainer": "trl"}, metrics={"kl_all/k3": 1.1 * step.metrics["kl_all/k3"]}
    )


RULE = Rule(
    code="KLD001",
    name="kl-recomputed",
    kind="E",
    needs=("ref_logprob", "new_logprob", "policy_mask", "metrics.kl_all/k3"),
    taints=("metrics",),
    applies=has_reference,
    judge=judge,
    example=example,
    lookalikes=(with_kl, elsewhere),
)
