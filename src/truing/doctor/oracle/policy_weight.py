"""The factor of each token's policy loss that gates, corrections and selections of tokens declare."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from truing.doctor.evidence import Step

BOUND_TOLERANCE = 1e-5
"""Nats: float32 leaves 1e-6 of a log-ratio."""

MOST_NATS = 700.0
"""float64 represents e^700, so that 0 times a ratio is 0."""


def policy_weight(step: Step, mask_N: Tensor) -> Tensor:
    """Return the factor of a token's policy loss, [N] float64; 1 without any.

    A gate leaves out tokens with θ ÷ old outside its bounds. ``row_drift`` leaves out tokens with a negative
    advantage in rows whose mean of log sampler − log θ is larger. ``entropy_share`` keeps that share of a
    micro-batch's tokens, those of the highest entropies.
    """
    setup, weight_N = step.setup, correction_weight(step, mask_N)
    moved_N = _moved(step, mask_N)
    if setup.min_ratio is not None:
        weight_N = weight_N * (moved_N.exp() >= setup.min_ratio)
    if setup.most_ratio is not None:
        weight_N = weight_N * (moved_N.exp() <= setup.most_ratio)
    if setup.row_drift is not None:
        near_N = _row_drift(step, mask_N) <= setup.row_drift
        weight_N = weight_N * (near_N | (stream(step, "advantage") >= 0))
    if setup.entropy_share is not None:
        weight_N = weight_N * (stream(step, "entropy") >= _least_entropy(step, mask_N))
    return weight_N


def correction_weight(step: Step, mask_N: Tensor) -> Tensor:
    """Return the factor of a declared correction, [N] float64, from ρ = old ÷ sampler.

    min(max(ρ, low), high); ρ within its bounds, or 0; the whole row if its mean log ρ is within them; by the
    product of a row's ρ, limited or within bounds. A token without a sampler's number has ρ = 1.
    """
    setup = step.setup
    if setup.correction in (None, "off"):
        return torch.ones(len(mask_N), dtype=torch.float64)
    low = 0.0 if setup.correction_low is None else setup.correction_low  # no bound is declared
    high = math.inf if setup.correction_high is None else setup.correction_high
    log_N = _drift(step, mask_N)
    if setup.correction in ("sequence_truncate", "sequence_mask"):
        log_N = torch.where(mask_N, per_row(step, log_N)[step.sample_of_token], 0.0)
    ratio_N = log_N.clamp(max=MOST_NATS).exp()
    if setup.correction in ("truncate", "sequence_truncate"):
        return ratio_N.clamp(low, high)
    if setup.correction == "sequence":
        ratio_N = (per_row(step, log_N) / _count(step, mask_N))[step.sample_of_token].exp()
    within_N = (ratio_N >= low) & (ratio_N <= high)
    return within_N * (torch.ones_like(ratio_N) if setup.correction == "sequence" else ratio_N)


def near_weight_bound(step: Step, mask_N: Tensor) -> Tensor:
    """Return tokens whose factor is within rounding of another one: [N] bool."""
    setup = step.setup
    bounds = [setup.correction_low, setup.correction_high]
    drift_N = _drift(step, mask_N)
    of_row_N = per_row(step, drift_N)[step.sample_of_token]
    near_N = near(_moved(step, mask_N), [setup.min_ratio, setup.most_ratio]) | near(drift_N, bounds)
    if setup.correction == "sequence":
        near_N |= near(of_row_N / _count(step, mask_N)[step.sample_of_token], bounds)
    elif (setup.correction or "").startswith("sequence"):
        near_N |= near(of_row_N, bounds)
    if setup.row_drift is not None:
        near_N |= (_row_drift(step, mask_N) - setup.row_drift).abs() < BOUND_TOLERANCE
    if setup.entropy_share is not None:
        near_N |= (stream(step, "entropy") - _least_entropy(step, mask_N)).abs() < BOUND_TOLERANCE
    return near_N


def near(log_N: Tensor, bounds: Sequence[float | None]) -> Tensor:
    """Return where a logarithm is that of a bound, up to rounding."""
    near_N = torch.zeros(len(log_N), dtype=torch.bool)
    for bound in bounds:
        if bound is not None and bound > 0 and bound != 1:
            near_N |= (log_N - math.log(bound)).abs() < BOUND_TOLERANCE
    return near_N


def _moved(step: Step, mask_N: Tensor) -> Tensor:
    """Return log θ − log old, [N] nats; 0 outside the mask."""
    return torch.where(mask_N, stream(step, "new_logprob") - stream(step, "old_logprob"), 0.0)


def _drift(step: Step, mask_N: Tensor) -> Tensor:
    """Return log old − log sampler, [N] nats; 0 outside the mask, and without a sampler's number."""
    return torch.where(mask_N, step.stream("old_logprob") - step.stream("sampler_logprob"), 0.0).nan_to_num()


def _row_drift(step: Step, mask_N: Tensor) -> Tensor:
    """Return the row's mean of log sampler − log θ, [N] nats; of log old without a sampler."""
    name = "sampler_logprob" if step.has("sampler_logprob") else "old_logprob"
    drift_N = torch.where(mask_N, step.stream(name) - step.stream("new_logprob"), 0.0).nan_to_num()
    return (per_row(step, drift_N) / _count(step, mask_N))[step.sample_of_token]


def _least_entropy(step: Step, mask_N: Tensor) -> Tensor:
    """Return the least entropy that the declared share of the token's micro-batch has, [N] nats."""
    entropy_N, least_N = stream(step, "entropy"), torch.zeros(len(mask_N), dtype=torch.float64)
    part_N = step.micro_batch_of_sample[step.sample_of_token]
    for part in part_N[mask_N].unique():
        here_N = part_N == part
        least_N[here_N] = entropy_N[here_N & mask_N].quantile(1 - (step.setup.entropy_share or 0.0))
    return least_N


def _count(step: Step, mask_N: Tensor) -> Tensor:
    """Return each row's tokens under the mask, at least 1: [B]."""
    return per_row(step, mask_N).clamp(min=1)


def per_row(step: Step, x_N: Tensor) -> Tensor:
    """Return the sum over each row: [B] float64."""
    return torch.zeros(len(step.samples), dtype=torch.float64).index_add(
        0, step.sample_of_token, x_N.double()
    )


def stream(step: Step, name: str) -> Tensor:
    """Return a stream as float64, 0 if it is absent."""
    if name not in step.tokens:
        return torch.zeros(len(step.sample_of_token), dtype=torch.float64)
    return step.tokens[name].double().nan_to_num()
