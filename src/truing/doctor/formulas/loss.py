"""Which aggregation and KL the token gradients of a step follow, found from the rows alone.

    g_t = f · w_t (A_t r_t − β k′_t)

w_t is an aggregation's weight of a token, k′ the slope of a KL estimator. For each pair of both, f and β are
fitted; the pair that leaves nothing but rounding is the loss. Optimizer steps before the first step have
ratios of 1, so that no clip is in the way.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.oracle.token_gradients import aggregation_weight

ROUNDING = 1e-3
"""Of the largest token gradient: float32 leaves 1e-6."""

AGGREGATIONS: Mapping[str, str] = {
    "token_mean": "mean over the tokens of the optimizer step",
    "sequence_mean": "mean over rows of the mean over their tokens",
    "sequence_total": "mean over rows of the sum over their tokens",
    "prompt_mean": "mean over groups of the mean over their tokens",
    "rank_token_mean": "mean over ranks of the mean over their tokens",
    "micro_batch_token_mean": "mean over micro-batches of the mean over their tokens",
}
"""Aggregations, as text; a sum is a mean times a factor."""

MISTAKES = {"micro_batch_token_mean": "each micro-batch divides by its own tokens: short ones count for more"}

SLOPES = ("k3", "k2", "k1")


class Loss(NamedTuple):
    """A loss that the token gradients follow."""

    aggregation: str
    kl: str  # its estimator; "" without a KL term

    @property
    def mistake(self) -> str:
        """Return the known mistake that it has, as text; "" if it may be meant."""
        return MISTAKES.get(self.aggregation, "")


class Fit(NamedTuple):
    """A loss with its fitted numbers."""

    factor: float  # f
    kl_coef: float  # β
    kl_size: float  # the largest share of a token gradient that the KL term has


def losses_of(step: Step) -> dict[Loss, Fit] | None:
    """Return every loss that the token gradients follow; None if the step cannot tell."""
    needs = ("token_gradient", "policy_mask", "advantage", "new_logprob")
    if step.missing(needs):
        return None
    _, first = next(step.at_each_optimizer_step())
    mask_N = first.tokens["policy_mask"].bool() & ~first.stream("new_logprob").isnan()
    got_N = first.stream("token_gradient").nan_to_num()
    if not (first.stream("advantage").nan_to_num()[mask_N] * got_N[mask_N]).any():
        return None
    parts = {"rank_token_mean": first.passes.rank, "micro_batch_token_mean": first.passes.micro_batch}
    found: dict[Loss, Fit] = {}
    for name in AGGREGATIONS:
        if name in parts and len(parts[name].unique()) < 2:
            continue
        setup = replace(first.setup, aggregation=name)
        weight_N = aggregation_weight(replace(first, setup=setup), mask_N, mask_N)
        for kl in ("", *(SLOPES if first.has("ref_logprob") else ())):
            if (fit := _fit(first, weight_N, mask_N, got_N, kl)) is not None:
                found[Loss(name, kl)] = fit
    return found


def _fit(step: Step, weight_N: Tensor, mask_N: Tensor, got_N: Tensor, kl: str) -> Fit | None:
    """Return f and β that leave rounding alone; None if none do."""
    columns = [
        weight_N * torch.where(mask_N, step.stream("advantage").nan_to_num(), 0.0) * _ratio(step, mask_N)
    ]
    if kl:
        columns.append(-weight_N * torch.where(mask_N, _slope(step, kl), 0.0))
    table = torch.stack([column[mask_N] for column in columns], dim=1)
    solved = torch.linalg.lstsq(table, got_N[mask_N, None], driver="gelsd").solution[:, 0]
    apart = (table @ solved - got_N[mask_N]).abs().max()
    if float(apart) > ROUNDING * float(got_N.abs().max()) or not float(solved[0]):
        return None
    if not kl:
        return Fit(float(solved[0]), 0.0, 0.0)
    size = float((table[:, 1] * solved[1]).abs().max() / got_N.abs().max())
    return Fit(float(solved[0]), float(solved[1] / solved[0]), size)


def policy_gradients(step: Step, kl: str, fit: Fit) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the policy loss's part of the gradients of tokens with an advantage, in one optimizer step.

    Args:
        step: with the streams of that optimizer step, and the aggregation in its setup.
        kl: the estimator of the KL in the loss, whose part is taken out; "" without one.
        fit: f and β.

    Returns:
        The part, what it is without a clip (f w A r), the ratio and the advantage: each [K].
    """
    mask_N = step.tokens["policy_mask"].bool() & ~step.stream("new_logprob").isnan()
    weight_N = aggregation_weight(step, mask_N, mask_N)
    got_N, advantage_N = step.stream("token_gradient"), step.stream("advantage").nan_to_num()
    if kl:
        got_N = got_N + fit.factor * fit.kl_coef * weight_N * _slope(step, kl)
    ratio_N = _ratio(step, mask_N)
    told_N = mask_N & ~got_N.isnan() & (advantage_N != 0)
    whole_N = fit.factor * weight_N * advantage_N * ratio_N
    return got_N[told_N], whole_N[told_N], ratio_N[told_N], advantage_N[told_N]


def _ratio(step: Step, mask_N: Tensor) -> Tensor:
    """Return new ÷ old of each token, 1 where either is unknown: [N]."""
    moved_N = step.stream("new_logprob") - step.stream("old_logprob")
    return torch.where(mask_N, moved_N.nan_to_num(0.0), 0.0).clamp(max=700.0).exp()


def _slope(step: Step, kl: str) -> Tensor:
    """Return the slope of a KL estimator by the new log-probability: [N]."""
    x_N = (step.stream("new_logprob") - step.stream("ref_logprob")).nan_to_num(0.0)
    return {"k1": torch.ones_like(x_N), "k2": x_N, "k3": -torch.expm1(-x_N)}[kl]


def loss_text(loss: Loss, fit: Fit) -> str:
    """Return a loss as text, with its fitted numbers."""
    sign = "minus " if fit.factor < 0 else ""
    size = abs(fit.factor)
    factor = "" if math.isclose(size, 1.0, rel_tol=1e-3) else f", times {size:.4g}"
    kl = f"; KL {loss.kl} × {fit.kl_coef:.3g} to the reference" if loss.kl else ""
    return f"{sign}{AGGREGATIONS[loss.aggregation]}{factor}{kl}"
