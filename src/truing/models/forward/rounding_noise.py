"""What rounding alone may change: a model whose modules' outputs are moved within their last digit.

Two forwards of the same weights in the same precision add up in another order, and differ by roundings at
every module. How far that carries is measured by rounding at random, as Monte Carlo arithmetic does
(https://en.wikipedia.org/wiki/Monte_Carlo_arithmetic): it needs no copy of the weights in a finer precision.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

FINE_DTYPES = {"torch.float32", "torch.float64"}
"""Types of weights that need no look at what rounding changes."""

MATMUL_ROUNDING = {"high": 2.0**-10, "medium": 2.0**-7}
"""The last digit of a product of float32 matrices, where torch is told to multiply in TF32 or bfloat16."""


def device_and_precision(model: nn.Module) -> str:
    """Its device, and what it rounds in where that is not float32 throughout."""
    weights = list(model.parameters())
    kind = weights[0].device.type
    if torch.is_autocast_enabled(kind):
        return f"{kind}, {torch.get_autocast_dtype(kind)}"
    if coarse := sorted({str(weight.dtype) for weight in weights} - FINE_DTYPES):
        return f"{kind}, {' and '.join(coarse)}"
    precision = torch.get_float32_matmul_precision()
    return f"{kind}, {precision} precision" if precision in MATMUL_ROUNDING else kind


def rounding_unit(dtype: torch.dtype) -> float:
    """Of a number of this type that a matrix product may have made, relative to the number."""
    finest = torch.finfo(dtype).eps
    if dtype is not torch.float32:
        return finest
    return MATMUL_ROUNDING.get(torch.get_float32_matmul_precision(), finest)


@contextmanager
def random_rounding(model: nn.Module, seed: int) -> Iterator[None]:
    """Within the block each output of a module without parts is off by up to half of its last digit.

    Gradients that come back through it are off by as much. Torch's own random numbers are left alone.
    """
    chance: dict[torch.device, torch.Generator] = {}

    def rounded(module: nn.Module, inputs: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        device = output.device
        if device not in chance:
            chance[device] = torch.Generator(device).manual_seed(seed)
        unit = torch.rand(output.shape, generator=chance[device], device=device)
        return (output.float() * (1 + rounding_unit(output.dtype) * (unit - 0.5))).to(output.dtype)

    modules = [module for module in model.modules() if not any(module.children())]
    handles = [module.register_forward_hook(rounded) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
