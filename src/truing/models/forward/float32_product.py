"""Matrix products of coarse numbers that are summed, and stay, in float32."""

import torch
from torch import Tensor


def float32_product(one: Tensor, other: Tensor) -> Tensor:
    """Return the matrix product in float32, of [n, k] and [k, m] or of batches [b, n, k] and [b, k, m].

    CUDA multiplies bfloat16 without rounding the result; elsewhere both are converted first.
    https://docs.pytorch.org/docs/stable/generated/torch.mm.html
    """
    if one.device.type == "cuda" and one.dtype is torch.bfloat16:
        product = torch.mm if one.dim() == 2 else torch.bmm
        return product(one, other, out_dtype=torch.float32)
    return one.float() @ other.float()
