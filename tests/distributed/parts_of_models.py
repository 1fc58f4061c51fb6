"""Loads models as a rank, and compares its parts with whole weights: ``python … FOLDER_OR_NAME DTYPE …``.

``FOLDER:FOLDER`` are a folder for each rank.
"""

import os
import sys

import torch
from torch.distributed.tensor import DTensor

from truing.distributed.ranks import join
from truing.distributed.sharding import local_bytes, whole
from truing.models.load import load


def compare(name: str, dtype: torch.dtype) -> None:
    """Raise unless the parts of all ranks are the whole weights, and this rank holds its share of them."""
    alone, shared = load(name, dtype=dtype), load(name, dtype=dtype, ranks=join("cpu", 1, 60))
    parts, weights = (dict(each.model.named_parameters()) for each in (shared, alone))
    assert parts.keys() == weights.keys()
    for each in parts:
        assert isinstance(parts[each], DTensor), each
        assert parts[each].dtype == weights[each].dtype
        assert torch.equal(whole(parts[each].detach()), weights[each]), each
    assert sum(map(local_bytes, parts.values())) < 0.6 * sum(weight.nbytes for weight in weights.values())
    buffers = dict(shared.model.named_buffers())
    for each, buffer in alone.model.named_buffers():
        assert torch.equal(buffers[each], buffer), each
    models = alone.model, shared.model
    ends = [(each.get_input_embeddings().weight, each.get_output_embeddings().weight) for each in models]
    assert (ends[0][0] is ends[0][1]) == (ends[1][0] is ends[1][1])
    assert shared.digest == alone.digest


if __name__ == "__main__":
    for name, dtype in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        folders = name.split(":")
        compare(folders[int(os.environ["RANK"]) % len(folders)], getattr(torch, dtype))
