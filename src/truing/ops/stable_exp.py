"""Products with e^x that are finite where e^x alone overflows its dtype.

A log-ratio above 88 nats overflows float32. The loss at such a token, and its gradient, may still be finite:
0 where the token is clipped, its advantage is 0, or a gate drops it. Infinity · 0 would be NaN.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from truing.ops.argument_checks import check_tensors

MAX_LOG = 80.0
"""Nats. e^80 is finite in float32; up to here a ratio is computed directly."""


def excess(log: Tensor) -> Tensor:
    """Return the part of a logarithm above ``MAX_LOG``.

    s = max(x − 80, 0), a constant: e^x = e^(x − s) · e^s, of which the first factor is finite.

    Args:
        log: float, any one shape ([B, T], [N]), nats.

    Returns:
        The same shape, nats, ≥ 0, without a gradient; 0 up to ``MAX_LOG``, NaN for NaN.
    """
    check_tensors(log=(log, "float"))
    return (log.detach() - MAX_LOG).clamp(min=0)


def times_exp(factor: Tensor, log: Tensor) -> Tensor:
    """Return a number times a power of e, without an overflow of the power alone.

    y = f · e^x = ((f · e^a) · e^b) · …, a + b + … = x, each within ±80
    (https://en.wikipedia.org/wiki/Exponentiation#Identities_and_properties). For every f ≠ 0 of float64
    the product overflows or underflows beyond ±1,600 nats.

    Args:
        factor: float, any one shape ([B, T], [N]), any unit; a constant.
        log: the same shape, nats; a constant.

    Returns:
        The same shape, the factor's unit: exactly f at x = 0, 0 where f is 0, ±∞ on overflow.
    """
    check_tensors(factor=(factor, "float"), log=(log, "float"))
    factor, remaining = factor.detach(), log.detach()
    if not remaining.any():
        return factor
    for _ in range(20):
        part = remaining.clamp(-MAX_LOG, MAX_LOG)
        factor, remaining = factor * part.exp(), remaining - part
    return factor


def scale_gradient_by_exp(x: Tensor, log: Tensor) -> Tensor:
    """Return a number unchanged, with its gradient multiplied by a power of e in the backward pass.

    y = x, ∂y/∂x = e^s  (https://en.wikipedia.org/wiki/Chain_rule). f(y) then has the gradient
    f'(x) · e^s, where the gradient of e^s · f(x) would compute infinity · 0 wherever f' is 0.

    Args:
        x: float, any one shape ([B, T], [N]), any unit.
        log: the same shape, nats; a constant.

    Returns:
        The same shape, equal to ``x``; where ``log`` is 0 the gradient is unchanged.
    """
    check_tensors(x=(x, "float"), log=(log, "float"))
    return cast("Tensor", _ScaleGradientByExp.apply(x, log))  # pyright: ignore[reportUnknownMemberType]


class _ScaleGradientByExp(torch.autograd.Function):
    """The identity forward; backward times e^log."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, log: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(log)
        return x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        """∂L/∂x = e^log · ∂L/∂y."""
        (log,) = ctx.saved_tensors
        return times_exp(grad, log), None
