"""What rounding explains of a layer's outputs, in the dtype in which an engine computes.

In another dtype than float32 the bound of one output hides int8. Over all outputs of a layer it shows:
rounding is independent of what quantization changes, and brings no right layer nearer to quantized weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from truing.engines.vllm.proof.expected_layers import FORMATS, Responses

BOUND = 8.0
"""Units that rounding explains of an output. Healthy layers stay below 2.2; one element of a 576-wide layer
that is off by 1e-3 gives 9.9 in float32."""

NOISE = 1.0
"""Units of eps that rounding explains of all outputs of a product, as a share of their length. Healthy layers
stay below 0.28: an output is rounded once."""

FLOAT32 = torch.finfo(torch.float32).eps

TINY = 1e-30
"""Smallest unit: where weights are 0, nothing is rounded."""

ONE_ROUNDING = 1 / 3
"""Units of eps that a rounded output is off, as a share of its layer's: 0.22 if it is rounded once."""

NEARER = 0.5
"""Share of a layer's difference that a format may leave to explain it."""

OUTPUTS = 32
"""The fewest outputs of a layer that tell."""


@dataclass(frozen=True)
class Rounding:
    """Measures differences in units of the rounding of one output.

    A unit is eps · Σ|W|. Outputs of ``products`` in a coarser dtype than float32 are summed in float32 and
    then rounded: there a unit is eps · (|y| + rms(y)), and all outputs together differ less than one.
    """

    eps: float
    bound: float = BOUND  # units that rounding explains
    products: bool = False

    @classmethod
    def of_products(cls, dtype: torch.dtype) -> "Rounding":
        """Return that of matrix products in a dtype."""
        return cls(torch.finfo(dtype).eps, products=dtype is not torch.float32)

    def unit(self, response: Tensor, size: Tensor) -> Tensor:
        """Return a unit of each output [outputs], from the outputs y and Σ|W|."""
        if not self.products:
            return (self.eps * size).clamp(min=TINY)
        typical = response.norm() / max(1, len(response)) ** 0.5
        return (self.eps * (response.abs() + typical) + FLOAT32 * size).clamp(min=TINY)

    def error(self, found: Tensor, response: Tensor, size: Tensor) -> float:
        """Return the largest difference in units; infinite for NaN and for other shapes."""
        if found.shape != response.shape:
            return float("inf")
        if not len(found):
            return 0.0
        difference = (found - response).abs()
        error = (difference / self.unit(response, size)).max()
        if self.products:
            most = NOISE * self.eps * response.norm() + BOUND * FLOAT32 * size.norm()
            error = torch.maximum(error, self.bound * difference.norm() / most.clamp(min=TINY))
        return float(error.nan_to_num(nan=float("inf")))

    def beyond(self, found: Tensor, response: Tensor, size: Tensor) -> int:
        """Return how many outputs differ by more than rounding explains; all of other shapes."""
        if found.shape != response.shape:
            return len(found)
        return int((~((found - response).abs() <= self.bound * self.unit(response, size))).sum())

    def explains(self, found: Tensor, response: Tensor, size: Tensor) -> bool:
        """Return whether the outputs are these up to rounding."""
        return self.error(found, response, size) <= self.bound


def nearer_format(
    found: Mapping[str, Tensor], published: Responses, eps: float, rounded: Callable[[str], Responses]
) -> tuple[str, list[str]]:
    """Return the format that explains most layers, and these layers; ("", []) if none is nearer.

    Args:
        found: the engine's responses, by layer.
        published: the trainer's.
        eps: of the engine's dtype.
        rounded: from a format of ``FORMATS`` to the responses of the trainer's weights in it.
    """
    differences = {name: _apart(values, published[name][0]) for name, values in found.items()}
    suspected = [
        name
        for name, difference in differences.items()
        if difference > ONE_ROUNDING * eps and len(found[name]) >= OUTPUTS
    ]
    nearer: dict[str, list[str]] = {}
    for words in FORMATS if suspected else ():
        responses = rounded(words)
        nearer[words] = [
            name for name in suspected if _apart(found[name], responses[name][0]) < NEARER * differences[name]
        ]
    words = max(nearer, key=lambda words: len(nearer[words]), default="")
    return (words, nearer[words]) if words and nearer[words] else ("", [])


def _apart(values: Tensor, response: Tensor) -> float:
    """Return the length of a difference, relative to the expected response's; inf of other shapes."""
    if values.shape != response.shape:
        return float("inf")
    return float((values - response).norm() / response.norm().clamp(min=torch.finfo(response.dtype).tiny))
