"""Read of each weight of a model the part of this rank alone.

transformers makes a model without data, then reads a slice of the files for each parameter that is a DTensor,
and applies what it applies to whole weights: other names, stacked experts, another dtype.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel

from truing.distributed.sharding import part_of


@contextmanager
def reading_parts(mesh: DeviceMesh | None) -> Iterator[None]:
    """Within the block ``from_pretrained`` reads parts of weights, as ``shard`` cuts them over a mesh."""
    if mesh is None:
        yield
        return
    read = PreTrainedModel._load_pretrained_model

    def read_parts(model: PreTrainedModel, *args: Any, **options: Any) -> Any:
        for module in model.modules():
            for name, shape in list(module.named_parameters(recurse=False)):
                part = nn.Parameter(part_of(shape, mesh), requires_grad=shape.requires_grad)
                setattr(module, name, part)
        return read(model, *args, **options)

    PreTrainedModel._load_pretrained_model = staticmethod(read_parts)  # type: ignore[method-assign]
    try:
        yield
    finally:
        PreTrainedModel._load_pretrained_model = staticmethod(read)  # type: ignore[method-assign]
