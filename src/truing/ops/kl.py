"""Estimators of KL(π_θ ‖ π_ref) from tokens that π_θ sampled (http://joschu.net/blog/kl-approx.html).

With x = log π_ref − log π_θ at a sampled token, each estimates the same number, but as losses
their gradients differ (https://arxiv.org/abs/2512.21852):

          formula             value                        expected gradient when used as a loss
    k1    −x                  unbiased, high variance      0: no effect. Use it inside the reward
    k2    x² / 2              biased, low variance         ∇ KL(π_θ ‖ π_ref): the correct one
    k3    expm1(x) − x        unbiased, ≥ 0                ∇ KL(π_ref ‖ π_θ): the reverse direction

All three gradients hold on-policy; off-policy each needs the importance ratio.
"""

from typing import Literal

import torch
from torch import Tensor

from truing.ops.argument_checks import check_choice, check_tensors

Estimator = Literal["k1", "k2", "k3"]


def kl(logprob: Tensor, ref_logprob: Tensor, estimator: Estimator) -> Tensor:
    """Return the KL per token by the named estimator.

    k = kl_k1, kl_k2 or kl_k3 (http://joschu.net/blog/kl-approx.html).

    Args:
        logprob: float, any one shape ([B, T], [N]), nats, of tokens that π_θ sampled.
        ref_logprob: the same shape, nats, under the same sampling parameters; no gradient flows into it.
        estimator: which of the three.

    Returns:
        The same shape, nats; NaN where one is missing, 0 for equal policies.
    """
    check_choice("estimator", estimator, Estimator)
    return {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}[estimator](logprob, ref_logprob)


def kl_k1(logprob: Tensor, ref_logprob: Tensor) -> Tensor:
    """Return the KL per token by the log-ratio.

    k1 = log π_θ − log π_ref. Unbiased as a value; as a loss its expected gradient is 0.
    (http://joschu.net/blog/kl-approx.html)

    Args:
        logprob: float, any one shape ([B, T], [N]), nats, of tokens that π_θ sampled.
        ref_logprob: the same shape, nats, under the same sampling parameters; no gradient flows into it.

    Returns:
        The same shape, nats, of either sign; NaN where one is missing, 0 for equal policies.
    """
    return -_log_ref_ratio(logprob, ref_logprob)


def kl_k2(logprob: Tensor, ref_logprob: Tensor) -> Tensor:
    """Return the KL per token by half the squared log-ratio.

    k2 = (log π_θ − log π_ref)² / 2. Biased as a value; as a loss its gradient is that of
    KL(π_θ ‖ π_ref), unbiased. (http://joschu.net/blog/kl-approx.html)

    Args:
        logprob: float, any one shape ([B, T], [N]), nats, of tokens that π_θ sampled.
        ref_logprob: the same shape, nats, under the same sampling parameters; no gradient flows into it.

    Returns:
        The same shape, nats², ≥ 0; NaN where one is missing, 0 for equal policies.
    """
    return _log_ref_ratio(logprob, ref_logprob) ** 2 / 2


def kl_k3(logprob: Tensor, ref_logprob: Tensor) -> Tensor:
    """Return the KL per token by the estimator of GRPO.

    k3 = expm1(x) − x, x = log π_ref − log π_θ. Unbiased as a value and never negative (exp(x) − x − 1
    is, by rounding); as a loss its gradient is that of KL(π_ref ‖ π_θ), not of KL(π_θ ‖ π_ref).
    (http://joschu.net/blog/kl-approx.html, https://arxiv.org/abs/2402.03300 eq. 4)

    Args:
        logprob: float, any one shape ([B, T], [N]), nats, of tokens that π_θ sampled.
        ref_logprob: the same shape, nats, under the same sampling parameters; no gradient flows into it.

    Returns:
        The same shape, nats, ≥ 0; NaN where one is missing, 0 for equal policies.
    """
    x = _log_ref_ratio(logprob, ref_logprob)
    return torch.expm1(x) - x


def _log_ref_ratio(logprob: Tensor, ref_logprob: Tensor) -> Tensor:
    """Return log π_ref − log π_θ, any one shape, nats."""
    check_tensors(logprob=(logprob, "float"), ref_logprob=(ref_logprob, "float"))
    return ref_logprob.detach() - logprob
