"""Off-policy weights: the trainer's probability of a token over the sampler's.

This is old / sampler, a constant. The ratio of the clip is θ / old, which changes with every optimizer step.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from truing.ops.argument_checks import check_choice, check_tensors
from truing.ops.masks import zero_outside
from truing.ops.ratios import importance_log_ratio, within_bounds

Method = Literal["truncate", "mask", "sequence", "sequence_truncate", "sequence_mask"]


def correction_weights(
    old_logprob_BT: Tensor,
    sampler_logprob_BT: Tensor,
    mask_BT: Tensor,
    method: Method,
    low: float,
    high: float,
) -> Tensor:
    """Return the factor of each token's loss, from ρ = π_old / π_sampler.

    truncate   min(ρ, high)                              (https://fengyao.notion.site/off-policy-rl)
    mask       ρ where low ≤ ρ ≤ high, else 0            (IcePop, https://arxiv.org/abs/2510.18855)
    sequence   1 where low ≤ exp(mean_t log ρ) ≤ high, else 0: the whole answer

    With the product P = exp(Σ_t log ρ) of an answer, which makes its gradient unbiased
    (https://yingru.notion.site/When-Speed-Kills-Stability, TRL's modes of the same names):

    sequence_truncate   min(P, high)
    sequence_mask       P where low ≤ P ≤ high, else 0

    Args:
        old_logprob_BT: [B, T] float, nats, by the trainer before the first optimizer step.
        sampler_logprob_BT: [B, T] float, nats, as sampled.
        mask_BT: [B, T] bool, the tokens that count; the others may be NaN.
        method: which of the five.
        low: the smallest ratio kept; ``truncate`` ignores it.
        high: the largest ratio.

    Returns:
        [B, T] like ``old_logprob_BT``, a constant ≥ 0; 1 off the mask, and on it where both policies agree.
    """
    check_choice("method", method, Method)
    check_tensors(
        old_logprob_BT=(old_logprob_BT, "float"),
        sampler_logprob_BT=(sampler_logprob_BT, "float"),
        mask_BT=(mask_BT, "bool"),
    )
    log_BT = zero_outside((old_logprob_BT - sampler_logprob_BT).detach(), mask_BT)
    if method.startswith("sequence_"):
        log_BT = torch.where(mask_BT, log_BT.sum(1, keepdim=True), 0.0)
    if method.endswith("truncate"):
        return torch.where(log_BT > math.log(high), high, log_BT.exp())  # an overflow is above it
    if method.endswith("mask"):
        return torch.where(within_bounds(log_BT, low, high), log_BT.exp(), 0.0)
    inside_BT = within_bounds(importance_log_ratio(log_BT, mask_BT, "sequence"), low, high)
    return torch.where(inside_BT | ~mask_BT, 1.0, 0.0).to(log_BT.dtype)


def effective_share(log_weight_N: Tensor) -> Tensor:
    """Return the effective sample size of weighted tokens, as a share of their number.

    ESS / N = (Σ ρ)² / (N Σ ρ²)  (Kish 1965)

    Args:
        log_weight_N: [N] float, nats, log ρ of each token.

    Returns:
        [] float64 in (0, 1]: 1 where all are equal; NaN for N = 0.
    """
    check_tensors(log_weight_N=(log_weight_N, "float"))
    weight_N = (
        (log_weight_N.double() - log_weight_N.double().max()).exp() if len(log_weight_N) else log_weight_N
    )
    return weight_N.sum().double() ** 2 / (len(weight_N) * weight_N.double().square().sum())
