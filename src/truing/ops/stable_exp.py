"""Products with e^x where e^x alone is too large for its dtype, and the product need not be.

A policy that moved by more than 88 nats at a token has a ratio that float32 cannot hold. A loss may still be
finite there, and so may its gradient: 0 where the clip bites, the advantage is 0, or a gate leaves the token
out. Infinity · 0 would be NaN.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from truing.ops.argument_checks import check_tensors

MAX_LOG = 80.0
"""Nats. e^80 is finite in float32; up to here a ratio is computed as it is."""


def excess(log: Tensor) -> Tensor:
    """What a logarithm has beyond ``LARGEST``.

    s = max(x − 80, 0), a constant: e^x = e^(x − s) · e^s, of which the first factor is finite.

    Args:
        log: float, any one shape ([B, T], [N]), nats.

    Returns:
        The same shape, nats, ≥ 0, without a gradient; 0 for all that is of ordinary size, NaN for NaN.
    """
    check_tensors(log=(log, "float"))
    return (log.detach() - MAX_LOG).clamp(min=0)


def times_exp(factor: Tensor, log: Tensor) -> Tensor:
    """A number times a power of e, neither of which decides alone whether the product is finite.

    y = f · e^x = ((f · e^a) · e^b) · …, a + b + … = x, each within ±80
    (https://en.wikipedia.org/wiki/Exponentiation#Identities_and_properties). No f ≠ 0 that float64
    can hold is finite and other than 0 after ±1,600 nats.

    Args:
        factor: float, any one shape ([B, T], [N]), any unit; a constant.
        log: the same shape, nats; a constant.

    Returns:
        The same shape, the factor's unit: exactly f at x = 0, 0 where f is 0, ±∞ where no number is left.
    """
    check_tensors(factor=(factor, "float"), log=(log, "float"))
    factor, left = factor.detach(), log.detach()
    if not left.any():
        return factor
    for _ in range(20):
        part = left.clamp(-MAX_LOG, MAX_LOG)
        factor, left = factor * part.exp(), left - part
    return factor


def scale_gradient_by_exp(x: Tensor, log: Tensor) -> Tensor:
    """A number as it is, whose gradient is multiplied by a power of e: last, after all else it is made of.

    y = x, ∂y/∂x = e^s  (https://en.wikipedia.org/wiki/Chain_rule). An estimate f(y) so has the slope
    f'(x) · e^s, where e^s · f(x) would have infinity · 0 on the way wherever f' is 0.

    Args:
        x: float, any one shape ([B, T], [N]), any unit.
        log: the same shape, nats; a constant.

    Returns:
        The same shape, equal to ``x``; where ``log`` is 0 the gradient is as ever.
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
