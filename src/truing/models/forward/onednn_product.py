"""Matrix products by oneDNN.

On a CPU torch computes fp32 products with MKL, which reaches less than half the speed of some CPUs. oneDNN
comes with torch, which does not use it for these products.
"""

import torch
from torch import Tensor


def no_view(out: Tensor) -> Tensor:
    """Return the same tensor, no longer a view of a function's output: some architectures write into it."""
    return torch.ops.aten._unsafe_view(out, out.shape)


def onednn_computes(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN computes this product."""
    fp32 = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    return fp32 and x.numel() > 0 and weight.is_contiguous()


def linear_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the product of x [..., in] and a weight [out, in]: [..., out].

    Each is contiguous or a transposed contiguous matrix: other strides take oneDNN a thousand times longer.
    """
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
