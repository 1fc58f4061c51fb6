"""Importance ratios between the policy and the one that sampled, and the tokens that the clip masks."""

import math
from typing import Literal

import torch
from torch import Tensor

from truing.ops.argument_checks import check_choice, check_tensors
from truing.ops.masks import zero_outside

Level = Literal["token", "sequence"]


def log_ratio(logprob: Tensor, old_logprob: Tensor) -> Tensor:
    """Return the log of the importance ratio.

    log r_t = log π_θ(t) − log π_old(t)  (https://arxiv.org/abs/1707.06347)

    Args:
        logprob: float, any one shape ([B, T], [N]), nats, of the current weights.
        old_logprob: the same shape, nats, the clipping reference; no gradient flows into it.

    Returns:
        The same shape, nats; NaN where either is missing, 0 on-policy.
    """
    check_tensors(logprob=(logprob, "float"), old_logprob=(old_logprob, "float"))
    return logprob - old_logprob.detach()


def token_ratio(log_ratio_BT: Tensor) -> Tensor:
    """Return the importance ratio of each token.

    r_t = exp(log r_t)  (https://arxiv.org/abs/1707.06347)

    Args:
        log_ratio_BT: [B, T] float, nats.

    Returns:
        [B, T]; 1 on-policy, where its gradient is ∇ log π.
    """
    check_tensors(log_ratio_BT=(log_ratio_BT, "float"))
    return log_ratio_BT.exp()


def sequence_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the length-normalized importance ratio of each sequence, at each of its tokens.

    s_i = exp(Σ_t m_t log r_t / Σ_t m_t)  (GSPO, https://arxiv.org/abs/2507.18071). The gradient of
    s_i reaches every masked token of row i.

    Args:
        log_ratio_BT: [B, T] float, nats; may be NaN where the mask is off.
        mask_BT: [B, T] bool, the tokens of the sequence.

    Returns:
        [B, T], one number per row; 1 for a row with an empty mask.
    """
    return _mean_log_ratio(log_ratio_BT, mask_BT).exp().expand_as(log_ratio_BT)


def importance_ratio(log_ratio_BT: Tensor, mask_BT: Tensor, level: Level) -> Tensor:
    """Return the ratio of an objective, per token or per sequence.

    r_t = exp(log r_t), or s_i = exp(mean_t log r_t) (https://arxiv.org/abs/2507.18071).

    Args:
        log_ratio_BT: [B, T] float, nats; may be NaN where the mask is off.
        mask_BT: [B, T] bool, tokens under the policy term.
        level: which of the two.

    Returns:
        [B, T]; 1 where the mask is off, or in a sequence without any.
    """
    check_choice("level", level, Level)
    if level == "sequence":
        return sequence_ratio(log_ratio_BT, mask_BT)
    return token_ratio(zero_outside(log_ratio_BT, mask_BT))


def importance_log_ratio(log_ratio_BT: Tensor, mask_BT: Tensor, level: Level) -> Tensor:
    """Return the logarithm of ``importance_ratio``, which is finite where the ratio overflows.

    log r_t, or log s_i = mean_t log r_t (https://arxiv.org/abs/2507.18071).

    Args:
        log_ratio_BT: [B, T] float, nats; may be NaN where the mask is off.
        mask_BT: [B, T] bool, tokens under the policy term.
        level: which of the two.

    Returns:
        [B, T], nats; 0 where the mask is off, or in a sequence without any.
    """
    check_choice("level", level, Level)
    if level == "sequence":
        return _mean_log_ratio(log_ratio_BT, mask_BT).expand_as(log_ratio_BT)
    return zero_outside(log_ratio_BT, mask_BT)


def within_bounds(log_ratio: Tensor, low: float | None, high: float | None) -> Tensor:
    """Return where a token's ratio is within bounds.

    m = (low ≤ exp(log r)) ∧ (exp(log r) ≤ high), a bound that is None always holds
    (IcePop, https://arxiv.org/abs/2510.18855, there for the sampler's and the trainer's policy).

    Args:
        log_ratio: float, any one shape ([B, T], [N]), nats.
        low: the smallest ratio, or None.
        high: the largest ratio, or None.

    Returns:
        Bool, the same shape; False at NaN where there is a bound, True everywhere without any.
    """
    check_tensors(log_ratio=(log_ratio, "float"))
    inside = torch.ones_like(log_ratio, dtype=torch.bool)
    if low is not None:
        inside = inside & (log_ratio >= math.log(low))
    return inside if high is None else inside & (log_ratio <= math.log(high))


def clip_mask(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """Return where the PPO clip sets the gradient to 0.

    c = (A > 0 ∧ r > 1 + high) ∨ (A < 0 ∧ r < 1 − low)  (https://arxiv.org/abs/1707.06347 fig. 1).
    A ratio outside the range, but on the side opposite to its advantage, keeps its gradient.

    Args:
        ratio: float, any one shape ([B, T], [N]).
        advantage: the same shape.
        low: width of the clip range below 1.
        high: width of the clip range above 1.

    Returns:
        Bool, the same shape; False at the limits of the range, at A = 0 and at NaN.
    """
    check_tensors(ratio=(ratio, "float"), advantage=(advantage, "float"))
    above = (advantage > 0) & (ratio > 1 + high)
    below = (advantage < 0) & (ratio < 1 - low)
    return torch.logical_or(above, below)


def _mean_log_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean of each sequence over its masked tokens: [B, 1]."""
    check_tensors(log_ratio_BT=(log_ratio_BT, "float"), mask_BT=(mask_BT, "bool"))
    length_B1 = mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    return zero_outside(log_ratio_BT, mask_BT).sum(dim=1, keepdim=True) / length_B1
