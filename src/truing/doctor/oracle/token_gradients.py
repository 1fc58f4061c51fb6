"""The gradient of the declared loss by each token's log-probability, in closed form: how hard it must pull.

    pull_t = −∂L/∂log π_t = c_t · r_t A_t [not clipped] − β c′_t r_t k′(log π_t − log π_ref,t) + w s_t / S

c_t is what the aggregation multiplies a token by, k′ is 1 (k1), x (k2) or 1 − e^{−x} (k3), s_t is 1 on
demonstrated tokens. On-policy r = 1, so this is the score function's weight A_t · c_t: mask, sign, clip,
denominators and aggregation are all in it, and nothing of the model is.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from truing.doctor.evidence import Setup, Step

BOUND_TOLERANCE = 1e-5
"""Nats: float32 leaves 1e-6 of a log-ratio."""


def expected_token_gradients(step: Step) -> Tensor:
    """What the recorded advantages and log-probabilities come to, [N] float64; 0 where nothing may pull."""
    pull_N = torch.zeros(len(step.row_of_token), dtype=torch.float64)
    inner = torch.tensor([row.inner_step for row in step.rows])[step.row_of_token]
    for number in inner[inner >= 0].unique().tolist():
        pull_N = torch.where(inner == number, _of_minibatch(step, inner == number), pull_N)
    return pull_N


def near_bound(step: Step) -> Tensor:
    """Tokens so near to a bound of their ratio that rounding decides on which side they are: [N] bool."""
    setup = step.setup
    new_N, old_N, drawn_N = (
        _stream(step, name) for name in ("new_logprob", "old_logprob", "sampler_logprob")
    )
    mask_N = _stream(step, "policy_mask").bool()
    moved_N, drift_N = (torch.where(mask_N, each, 0.0) for each in (new_N - old_N, old_N - drawn_N))
    low, high = setup.clip_low, setup.clip_high
    clip = [None if low is None else 1 - low, None if high is None else 1 + high, setup.max_ratio]
    near_N = _near(moved_N, [setup.min_ratio, setup.most_ratio, *clip])
    near_N |= _near(drift_N, [setup.correction_low, setup.correction_high])
    count_N = _per_row(step, mask_N).clamp(min=1)[step.row_of_token]
    means = [_per_row(step, each)[step.row_of_token] / count_N for each in (moved_N, drift_N)]
    near_N |= _near(means[0], clip) & (setup.ratio == "sequence")
    return near_N | (
        _near(means[1], [setup.correction_low, setup.correction_high]) & (setup.correction == "sequence")
    )


def complete_minibatches(step: Step) -> Tensor:
    """Tokens of minibatches all of whose rows are on record, to be counted: [N] bool.

    Each row has the numbers of its last update. Where an update was held back within an epoch, rows that had
    been in it left the minibatches of the epoch before, and those were divided by more than remains of them.
    """
    inner = torch.tensor([row.inner_step for row in step.rows])[step.row_of_token]
    if not step.numbers.get("gate/held_back"):
        return torch.ones_like(inner, dtype=torch.bool)
    return inner == inner.max()


def _near(log_N: Tensor, bounds: Sequence[float | None]) -> Tensor:
    """Where a logarithm is that of a bound, but for rounding."""
    near_N = torch.zeros(len(log_N), dtype=torch.bool)
    for bound in bounds:
        if bound is not None and bound > 0 and bound != 1:
            near_N |= (log_N - math.log(bound)).abs() < BOUND_TOLERANCE
    return near_N


def expected_entropy_gradients(step: Step) -> Tensor:
    """−∂L/∂H_t of the first minibatch: how hard the bonus pulls each token's entropy up, [N] float64."""
    weight = step.numbers.get("weight/entropy", step.setup.entropy_coef or 0.0)
    inner_N = torch.tensor([row.inner_step for row in step.rows])[step.row_of_token]
    mask_N = step.tokens["policy_mask"] & (inner_N == 0)
    if not weight or not mask_N.any():
        return torch.zeros(len(step.row_of_token), dtype=torch.float64)
    return weight * _aggregation_weight(step, mask_N, (inner_N == 0) & ~_demonstrated(step))


def expected_value_gradients(
    value_N: Tensor, returns_N: Tensor, mask_N: Tensor, coefficient: float
) -> Tensor:
    """−∂L/∂V of L = c · mean ½ (V − R)² over the tokens of a minibatch, before its first update: [N] float64.

    There no value has moved yet, so a clip around the old values bites nowhere.
    """
    error_N = torch.where(mask_N, value_N - returns_N, 0.0).double()
    return -coefficient * error_N / mask_N.sum().clamp(min=1)


def _of_minibatch(step: Step, here_N: Tensor) -> Tensor:
    """The pull on the tokens of one minibatch; elsewhere it means nothing."""
    demonstrated_N, shown_N = _stream(step, "supervised_mask").bool() & here_N, _demonstrated(step)
    pull_N = _policy(step, _stream(step, "policy_mask").bool() & here_N, here_N & ~shown_N)
    if (step.setup.kl_coef or 0) > 0 and step.setup.kl_where == "loss" and step.has("ref_logprob"):
        pull_N = pull_N + _kl(step, here_N & ~shown_N)
    if demonstrated_N.any():
        weight = step.numbers.get("weight/supervised", 1.0)
        share_N = weight * demonstrated_N.double() / demonstrated_N.sum()
        if (
            step.setup.surrogate == "dft"
        ):  # each token by its own probability: https://arxiv.org/abs/2508.05629
            share_N = share_N * torch.where(demonstrated_N, _stream(step, "new_logprob").exp(), 0.0)
        pull_N = pull_N + share_N
    return pull_N


def _policy(step: Step, mask_N: Tensor, drawn_N: Tensor) -> Tensor:
    setup = step.setup
    if setup.surrogate is None or not mask_N.any():
        return torch.zeros(len(mask_N), dtype=torch.float64)
    advantage_N = _stream(step, "advantage")
    factor_N = _aggregation_weight(step, mask_N, drawn_N) * _correction_weight(step, mask_N)
    if setup.surrogate == "reinforce":
        return factor_N * advantage_N
    log_N = torch.where(mask_N, _stream(step, "new_logprob") - _stream(step, "old_logprob"), 0.0).nan_to_num()
    if setup.ratio == "sequence":
        count = _per_row(step, mask_N).clamp(min=1)
        ratio_N = _exp(_per_row(step, log_N) / count)[step.row_of_token]
        pulling_N = factor_N * advantage_N * ~_clipped(ratio_N, advantage_N, setup)
        return mask_N * ratio_N * (_per_row(step, pulling_N) / count)[step.row_of_token]
    ratio_N = _exp(log_N)
    if setup.surrogate == "cispo":
        assert setup.max_ratio is not None
        return factor_N * ratio_N.clamp(max=setup.max_ratio) * advantage_N
    return factor_N * ratio_N * advantage_N * ~_clipped(ratio_N, advantage_N, setup)


def _correction_weight(step: Step, mask_N: Tensor) -> Tensor:
    """What declared gates and corrections multiply a token's policy loss by; 1 without any.

    A gate leaves out tokens whose ratio θ ÷ old is off its bounds; a correction weighs by ρ = old ÷ sampler:
    min(ρ, high), ρ within its bounds, or the whole row where its mean log ρ is within them.
    """
    setup, weight_N = step.setup, torch.ones(len(mask_N), dtype=torch.float64)
    new_N, old_N, drawn_N = (
        _stream(step, name) for name in ("new_logprob", "old_logprob", "sampler_logprob")
    )
    ratio_N = torch.where(mask_N, new_N - old_N, 0.0).exp()
    if setup.min_ratio is not None:
        weight_N = weight_N * (ratio_N >= setup.min_ratio)
    if setup.most_ratio is not None:
        weight_N = weight_N * (ratio_N <= setup.most_ratio)
    if setup.correction in (None, "off"):
        return weight_N
    assert setup.correction_low is not None
    assert setup.correction_high is not None
    log_N = torch.where(mask_N, old_N - drawn_N, 0.0)
    if setup.correction == "truncate":
        return weight_N * log_N.exp().clamp(max=setup.correction_high)
    if setup.correction == "sequence":
        log_N = (_per_row(step, log_N) / _per_row(step, mask_N).clamp(min=1))[step.row_of_token]
    within_N = (log_N.exp() >= setup.correction_low) & (log_N.exp() <= setup.correction_high)
    return weight_N * within_N * (1.0 if setup.correction == "sequence" else log_N.exp())


def _kl(step: Step, drawn_N: Tensor) -> Tensor:
    """Minus the gradient of the KL term, over all that the policy chose (k3, where its ratio is live)."""
    mask_N = _stream(step, "kl_mask").bool() & drawn_N
    new_N, old_N, ref_N = (_stream(step, name) for name in ("new_logprob", "old_logprob", "ref_logprob"))
    x_N = torch.where(mask_N, new_N - ref_N, 0.0)
    slope_N = {"k1": torch.ones_like(x_N), "k2": x_N, "k3": -torch.expm1(-x_N)}[
        step.setup.kl_estimator or "k3"
    ]
    ratio_N = torch.where(mask_N, _exp(new_N - old_N), 0.0)
    if step.setup.kl_weight == "none":
        ratio_N = mask_N.double()
    elif step.setup.kl_weight == "ratio":  # which then has a gradient of its own: k3 · ∂r/∂log π = k3 · r
        slope_N = slope_N + torch.expm1(-x_N) + x_N
    weight = step.numbers.get("weight/kl", step.setup.kl_coef)
    assert weight is not None
    return -weight * _aggregation_weight(step, mask_N, drawn_N) * ratio_N * slope_N


def _aggregation_weight(step: Step, mask_N: Tensor, drawn_N: Tensor) -> Tensor:
    """What the aggregation multiplies a token's loss by: 1/tokens, 1/(rows · own), 1/(rows · budget)."""
    setup = step.setup
    rows = int((_per_row(step, drawn_N) > 0).sum())
    if setup.aggregation == "token_mean":
        return mask_N.double() / mask_N.sum().clamp(min=1)
    if setup.aggregation == "sequence_mean":
        return mask_N.double() / (rows * _per_row(step, mask_N).clamp(min=1))[step.row_of_token]
    assert setup.max_new_tokens is not None
    return mask_N.double() / (rows * setup.max_new_tokens)


def _clipped(ratio_N: Tensor, advantage_N: Tensor, setup: Setup) -> Tensor:
    """Where the clip takes the gradient away: beyond the band, on the side that the advantage pulls to."""
    assert setup.clip_low is not None
    assert setup.clip_high is not None
    return ((advantage_N > 0) & (ratio_N > 1 + setup.clip_high)) | (
        (advantage_N < 0) & (ratio_N < 1 - setup.clip_low)
    )


def _demonstrated(step: Step) -> Tensor:
    """Tokens of rows that are demonstrations: [N] bool."""
    return _per_row(step, _stream(step, "supervised_mask"))[step.row_of_token] > 0


def _per_row(step: Step, x_N: Tensor) -> Tensor:
    """The sum over each row: [B] float64."""
    return torch.zeros(len(step.rows), dtype=torch.float64).index_add(0, step.row_of_token, x_N.double())


def _exp(log: Tensor) -> Tensor:
    """A ratio, any one shape, of which 0 times is 0: float64 holds e^700."""
    return log.clamp(max=700.0).exp()


def _stream(step: Step, name: str) -> Tensor:
    """A stream as float64, 0 where it is not there."""
    if name not in step.tokens:
        return torch.zeros(len(step.row_of_token), dtype=torch.float64)
    return step.tokens[name].double().nan_to_num()
