"""What rounding explains of a layer's outputs, in the dtype in which an engine computes."""

from dataclasses import dataclass

import torch
from torch import Tensor

BOUND = 8.0
"""Units that rounding explains of an output. Healthy layers stay below 2.2; one element of a 576-wide layer
that is off by 1e-3 gives 9.9 in float32."""

NOISE = 1.0
"""Units of eps that rounding explains of all outputs of a product, as a share of their length. Healthy layers
stay below 0.28: an output is rounded once."""

FLOAT32 = torch.finfo(torch.float32).eps

TINY = 1e-30
"""Smallest unit: where weights are 0, nothing is rounded."""


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

    def explains(self, found: Tensor, response: Tensor, size: Tensor) -> bool:
        """Return whether the outputs are these up to rounding."""
        return self.error(found, response, size) <= self.bound
