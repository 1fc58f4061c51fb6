"""The terms of the declared loss, from recorded numbers alone: what a step reports as its losses.

    L = Σ_t c_t ℓ_t,   with the aggregation's weight c_t and the declared weight of the term

ℓ is −min(r A, clip(r) A), −min(r, max) A log π or −A log π for the policy, r k(log π, log π_ref) for the KL,
−H for the entropy, −log π of demonstrated tokens, and half of the squared error of values.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Setup, Step
from truing.doctor.oracle.kl import kl_estimates
from truing.doctor.oracle.policy_weight import per_row, policy_weight, stream
from truing.doctor.oracle.token_gradients import (
    aggregation_weight,
    demonstrated,
    near_bound,
)

EPS = torch.finfo(torch.float32).eps


class ExpectedLoss(NamedTuple):
    """A term of the loss, and by how much rounding may move it."""

    value: float
    rounding: float

    @classmethod
    def of(cls, loss_N: Tensor, unsure_N: Tensor | None = None) -> "ExpectedLoss":
        """Return the sum of the tokens' losses; ``unsure_N`` is what rounding may change at each token."""
        unsure = 0.0 if unsure_N is None else float(unsure_N.abs().sum())
        return cls(float(loss_N.sum()), 1e-4 * float(loss_N.abs().sum()) + unsure)


def expected_losses(step: Step) -> dict[str, ExpectedLoss]:
    """Return the declared terms of one optimizer step's loss, weighted, by their names in ``loss/…``."""
    return dict(_terms(step))


def _terms(step: Step) -> Iterator[tuple[str, ExpectedLoss]]:
    setup, here_N = step.setup, _computed(step)
    drawn_N = here_N & ~demonstrated(step)
    mask_N = stream(step, "policy_mask").bool() & here_N
    if setup.surrogate is not None:
        loss_N = aggregation_weight(step, mask_N, drawn_N) * policy_weight(step, mask_N) * _policy(step)
        yield "policy", ExpectedLoss.of(loss_N, loss_N * near_bound(step))
    if (setup.kl_coef or 0) > 0 and setup.kl_where == "loss" and step.has("ref_logprob"):
        yield "kl", _kl(step, drawn_N)
    if weight := step.metrics.get("weight/entropy", setup.entropy_coef or 0.0):
        share_N = weight * aggregation_weight(step, mask_N, drawn_N)
        yield "entropy", ExpectedLoss.of(-share_N * stream(step, "entropy"), 8 * EPS * share_N)
    supervised_N = stream(step, "supervised_mask").bool() & here_N
    if supervised_N.any():
        share_N = step.metrics.get("weight/supervised", 1.0) * supervised_N.double() / supervised_N.sum()
        yield "supervised", ExpectedLoss.of(-share_N * stream(step, "new_logprob"))
    if setup.value_coef is not None and step.has("new_value"):
        yield "value", _value(step, setup)


def _computed(step: Step) -> Tensor:
    """Return the tokens of the optimizer step's minibatch: [N] bool."""
    return (step.optimizer_step_of_sample >= 0)[step.sample_of_token]


def _policy(step: Step) -> Tensor:
    """Return the surrogate of each token, without the weight of the aggregation: [N]."""
    setup, mask_N = step.setup, stream(step, "policy_mask").bool() & _computed(step)
    advantage_N, new_N = stream(step, "advantage"), stream(step, "new_logprob")
    if setup.surrogate == "reinforce":
        return -advantage_N * new_N
    log_N = torch.where(mask_N, new_N - stream(step, "old_logprob"), 0.0)
    if setup.ratio in ("sequence", "product"):
        count_B = per_row(step, mask_N).clamp(min=1) if setup.ratio == "sequence" else 1.0
        log_N = (per_row(step, log_N) / count_B)[step.sample_of_token]
    ratio_N = log_N.clamp(max=700.0).exp()
    if setup.surrogate == "cispo":
        assert setup.max_ratio is not None
        return -ratio_N.clamp(max=setup.max_ratio) * advantage_N * new_N
    assert setup.clip_low is not None
    assert setup.clip_high is not None
    clipped_N = ratio_N.clamp(1 - setup.clip_low, 1 + setup.clip_high)
    return -torch.minimum(ratio_N * advantage_N, clipped_N * advantage_N)


def _kl(step: Step, drawn_N: Tensor) -> ExpectedLoss:
    """Return the KL term; in float32 k3 is a difference of numbers near 1, whose last digit is lost."""
    mask_N = stream(step, "kl_mask").bool() & drawn_N
    new_N, old_N, ref_N = (stream(step, name) for name in ("new_logprob", "old_logprob", "ref_logprob"))
    x_N = torch.where(mask_N, new_N - ref_N, 0.0)
    of_token_N = kl_estimates(x_N)[step.setup.kl_estimator or "k3"]
    weight = step.metrics.get("weight/kl", step.setup.kl_coef)
    assert weight is not None
    ratio_N = torch.where(mask_N, new_N - old_N, 0.0).clamp(max=700.0).exp()
    share_N = weight * aggregation_weight(step, mask_N, drawn_N) * ratio_N
    return ExpectedLoss.of(share_N * of_token_N, 8 * EPS * share_N)


def _value(step: Step, setup: Setup) -> ExpectedLoss:
    """Return the term of the critic: half of the squared error, clipped pessimistically."""
    mask_N = stream(step, "value_mask").bool() & _computed(step)
    value_N, old_N, returns_N = (
        torch.where(mask_N, stream(step, name), 0.0) for name in ("new_value", "value", "returns")
    )
    error_N = (value_N - returns_N).square()
    if setup.value_clip is not None:
        clipped_N = old_N + (value_N - old_N).clamp(-setup.value_clip, setup.value_clip)
        error_N = torch.maximum(error_N, (clipped_N - returns_N).square())
    assert setup.value_coef is not None
    share = setup.value_coef / int(mask_N.sum().clamp(min=1))
    size_N = (value_N.abs() + returns_N.abs()) * mask_N
    return ExpectedLoss.of(share * error_N / 2, 8 * EPS * share * size_N.square())
