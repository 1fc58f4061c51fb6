"""A table of tensors as one tensor of each dtype: pickled one by one, hundreds of tensors take 0.1 s."""

from collections.abc import Mapping

import torch
from torch import Tensor

PackedTable = list[tuple[dict[str, torch.Size], Tensor]]
"""The shapes by name, and all entries in that order: [n]; one pair for each dtype."""


def pack(table: Mapping[str, Tensor]) -> PackedTable:
    """Return a table as one tensor of each dtype."""
    by_dtype = dict[torch.dtype, dict[str, Tensor]]()
    for name, tensor in table.items():
        by_dtype.setdefault(tensor.dtype, {})[name] = tensor
    return [
        (
            {name: tensor.shape for name, tensor in each.items()},
            torch.cat([tensor.reshape(-1) for tensor in each.values()]),
        )
        for each in by_dtype.values()
    ]


def unpack(packed: PackedTable) -> dict[str, Tensor]:
    """Return the table; each tensor has memory of its own."""
    return {
        name: entries_n.view(shape).clone()
        for shapes, all_n in packed
        for (name, shape), entries_n in zip(
            shapes.items(), all_n.split([shape.numel() for shape in shapes.values()]), strict=True
        )
    }
