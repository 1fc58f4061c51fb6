"""The effect of rounding, measured by perturbing each module's output within its last digit.

Two forwards of the same weights and precision may sum in another order, so they round differently in every
module. Random rounding measures the effect on the result, as Monte Carlo arithmetic does
(https://en.wikipedia.org/wiki/Monte_Carlo_arithmetic). It needs no copy of the weights in higher precision.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from truing.distributed.sharding import computing_device, computing_dtype

FINE_DTYPES = {"torch.float32", "torch.float64"}
"""Weight dtypes whose rounding is not measured."""

FINE_PRODUCT = 2.0**-20
"""Relative rounding of a product in float32, which is 2⁻²⁴; 2⁻¹⁰ in TF32, 2⁻⁷ in bfloat16."""


def device_and_precision(model: nn.Module) -> str:
    """Return the model's device, and its precision unless that is float32 throughout."""
    weights = list(model.parameters())
    kind = computing_device(model).type
    if torch.is_autocast_enabled(kind):
        return f"{kind}, {torch.get_autocast_dtype(kind)}"
    held = {weight.dtype for weight in weights if weight.is_floating_point()}  # not packed ones
    dtypes = {str(dtype) for dtype in (computing_dtype(model), *held)}
    if coarse := sorted(dtypes - FINE_DTYPES):
        return f"{kind}, {' and '.join(coarse)}"
    rounding = product_rounding(computing_device(model))
    return kind if rounding < FINE_PRODUCT else f"{kind}, products rounded to {rounding:.1g}"


def is_coarse(device: str) -> bool:
    """Return whether ``device_and_precision`` named a precision, whose rounding must be measured."""
    return "," in device


@functools.cache
def product_rounding(device: torch.device) -> float:
    """Return the largest relative rounding of a product in a float32 matrix product, measured once.

    Several settings of torch make a device multiply in TF32 or bfloat16, and not each device obeys each one.
    """
    column_N1 = torch.linspace(1, 2, 256, device=device)[:, None]
    row_1N = torch.linspace(1, 2, 251, device=device)[None]
    left_NK, right_KN = (torch.zeros(shape, device=device) for shape in ((256, 64), (64, 251)))
    left_NK[:, :1], right_KN[:1] = column_N1, row_1N  # one product each: the other 63 are 0
    exact_NN = column_N1.double() * row_1N.double()
    with torch.autocast(device.type, enabled=False):
        return float(((left_NK @ right_KN).double() / exact_NN - 1).abs().max())


def rounding_unit(dtype: torch.dtype, device: torch.device) -> float:
    """Return the relative rounding unit of a matrix product in this dtype on a device."""
    finest = torch.finfo(dtype).eps
    return max(finest, product_rounding(device)) if dtype is torch.float32 else finest


class _Rounded(torch.autograd.Function):
    """A tensor and its gradient, each off by up to half of a last digit. No tensor is saved for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, last_digit: float, generator: torch.Generator) -> Tensor:  # type: ignore[override]
        ctx.last_digit, ctx.generator = last_digit, generator
        return _rounded(x, last_digit, generator)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return _rounded(grad, ctx.last_digit, ctx.generator), None, None


def _rounded(x: Tensor, last_digit: float, generator: torch.Generator) -> Tensor:
    """Return x (1 + d), d uniform in ± half of the last digit, in the dtype of x."""
    factor = torch.rand(x.shape, generator=generator, device=x.device)
    return factor.sub_(0.5).mul_(last_digit).add_(1).mul_(x).to(x.dtype)


@contextmanager
def random_rounding(model: nn.Module, seed: int, dtype: torch.dtype = torch.float64) -> Iterator[None]:
    """Within the block each output of a module without submodules is off by up to half of its last digit.

    The digit is that of ``dtype`` if it is coarser than the output's. Gradients are off by as much. Torch's
    global random state is unchanged.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def rounded(module: nn.Module, inputs: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        device = output.device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(seed)
        last_digit = max(rounding_unit(output.dtype, device), torch.finfo(dtype).eps)
        return _Rounded.apply(output, last_digit, generators[device])

    modules = [module for module in model.modules() if not any(module.children())]
    handles = [module.register_forward_hook(rounded) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
