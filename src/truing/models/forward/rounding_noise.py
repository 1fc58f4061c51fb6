"""The effect of rounding, measured by perturbing each module's output within its last digit.

Two forwards of the same weights and precision may sum in another order, so they round differently in every
module. Random rounding measures the effect on the result, as Monte Carlo arithmetic does
(https://en.wikipedia.org/wiki/Monte_Carlo_arithmetic). It needs no copy of the weights in higher precision.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from truing.distributed.sharding import computing_device, computing_dtype

FINE_DTYPES = {"torch.float32", "torch.float64"}
"""Weight dtypes whose rounding is not measured."""

MATMUL_ROUNDING = {"high": 2.0**-10, "medium": 2.0**-7}
"""The last digit of a float32 matrix product if torch multiplies in TF32 or bfloat16."""


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
    precision = torch.get_float32_matmul_precision()
    return f"{kind}, {precision} precision" if precision in MATMUL_ROUNDING else kind


def is_coarse(device: str) -> bool:
    """Return whether ``device_and_precision`` named a precision, whose rounding must be measured."""
    return "," in device


def rounding_unit(dtype: torch.dtype) -> float:
    """Return the relative rounding unit of a matrix product in this dtype."""
    finest = torch.finfo(dtype).eps
    if dtype is not torch.float32:
        return finest
    return MATMUL_ROUNDING.get(torch.get_float32_matmul_precision(), finest)


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
        last_digit = max(rounding_unit(output.dtype), torch.finfo(dtype).eps)
        return _Rounded.apply(output, last_digit, generators[device])

    modules = [module for module in model.modules() if not any(module.children())]
    handles = [module.register_forward_hook(rounded) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
