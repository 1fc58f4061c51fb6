"""Weights of 4 bits, dequantized by a table."""

import torch
from torch import Tensor

LEVELS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""NF4: quantiles of a normal distribution over the largest (https://arxiv.org/abs/2305.14314, appendix E)."""


def nf4_weight(packed: Tensor, absmax: Tensor, in_features: int, dtype: torch.dtype) -> Tensor:
    """Return a weight [out, in] in ``dtype``.

    Args:
        packed: two weights in each byte, [out, n / 2]; the first is in the upper four bits.
        absmax: the scale of each block of a row, [out, blocks], float32.
        in_features: of the n ≥ in columns; the others fill the last block.
        dtype: each product of level and scale, in float32, is rounded to it.
    """
    levels = torch.tensor(LEVELS, dtype=torch.float32, device=packed.device)
    index = torch.stack([packed >> 4, packed & 15], dim=-1).flatten(1)  # [out, n]
    blocks = levels[index.int()].unflatten(1, (absmax.shape[1], -1))
    return (blocks * absmax[:, :, None]).flatten(1)[:, :in_features].to(dtype)
