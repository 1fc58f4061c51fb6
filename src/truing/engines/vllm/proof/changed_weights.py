"""What weights may become on their way, as functions of a weight: formats of fewer bits, other layouts."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

Cast = Callable[[Tensor], Tensor]
"""From a weight to what it has become, in any dtype that holds it."""

LARGEST_FLOAT8, LARGEST_INT8, LARGEST_INT4 = 448.0, 127.0, 7.0
"""Largest number of float8 (e4m3), and of a symmetric int8 and int4."""


def as_dtype(dtype: torch.dtype) -> Cast:
    """Return the cast to a dtype."""
    return lambda weight: weight.to(dtype)


def _by_way_of(dtype: torch.dtype) -> Cast:
    return lambda weight: weight.to(dtype).float()


def _float8(weight: Tensor, over: tuple[int, ...]) -> Tensor:
    """Quantize with a scale for all numbers along some dimensions."""
    scale = weight.float().abs().amax(over, keepdim=True).clamp(min=1e-12) / LARGEST_FLOAT8
    return (weight / scale).to(torch.float8_e4m3fn).float() * scale


def _integers(weight: Tensor, largest: float, inputs: int = 0) -> Tensor:
    """Quantize with a scale for so many inputs of an output, by default all; others are left as they are."""
    width = weight.shape[-1]
    if inputs and width % inputs:
        return weight
    groups = weight.float().unflatten(-1, (-1, inputs or width))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / largest
    return ((groups / scale).round() * scale).flatten(-2)


def _transposed(weight: Tensor) -> Tensor:
    """Exchange inputs and outputs; of another shape a loader would have refused it."""
    return weight.mT if weight.dim() > 1 and weight.shape[-1] == weight.shape[-2] else weight


def _by_tensor(weight: Tensor) -> Tensor:
    return _float8(weight, tuple(range(max(0, weight.dim() - 2), weight.dim())))


FORMATS: Mapping[str, Cast] = {
    "rounded to bfloat16, which loses small updates": _by_way_of(torch.bfloat16),
    "rounded to float16": _by_way_of(torch.float16),
    "rounded to float8": _by_way_of(torch.float8_e4m3fn),
    "quantized to float8, with a scale for each tensor": _by_tensor,
    "quantized to float8, with a scale for each row": partial(_float8, over=(-1,)),
    "quantized to int8, with a scale for each row": partial(_integers, largest=LARGEST_INT8),
    "quantized to int8, with a scale for 32 inputs": partial(_integers, largest=LARGEST_INT8, inputs=32),
    "quantized to int4, with a scale for 32 inputs": partial(_integers, largest=LARGEST_INT4, inputs=32),
    "quantized to int4, with a scale for 128 inputs": partial(_integers, largest=LARGEST_INT4, inputs=128),
}
"""By what weights are in it, in words."""

CHANGES: Mapping[str, Cast] = {**FORMATS, "transposed": _transposed}
"""Also other layouts, which are no nearer to the published weights than chance."""
