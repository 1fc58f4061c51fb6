"""Read of each weight of a model the part of this rank alone.

transformers makes a model without data, then reads a slice of the files for each parameter that is a DTensor,
and applies what it applies to whole weights: other names, stacked experts, another dtype.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter

from truing.distributed.sharding import keep_parts


@contextmanager
def reading_parts(mesh: DeviceMesh | None) -> Iterator[None]:
    """Within the block ``from_pretrained`` reads parts of weights, as ``shard`` cuts them over a mesh.

    A model whose files hold other rows than its weights, such as queries, keys and values in one tensor, is
    read whole.
    """
    if mesh is None:
        yield
        return
    read = PreTrainedModel._load_pretrained_model

    def read_parts(
        model: PreTrainedModel, state_dict: Any, files: Any, config: Any, *args: Any, **options: Any
    ) -> Any:
        if all(_keeps_rows(each) for each in config.weight_mapping or ()):
            keep_parts(model, mesh)
        return read(model, state_dict, files, config, *args, **options)

    PreTrainedModel._load_pretrained_model = staticmethod(read_parts)  # type: ignore[method-assign]
    try:
        yield
    finally:
        PreTrainedModel._load_pretrained_model = staticmethod(read)  # type: ignore[method-assign]


def _keeps_rows(mapping: object) -> bool:
    """Whether the rows of a rank follow from the same rows of the files, or from experts of their own.

    transformers cuts the tensors of a file as the weight is cut, and converts what is left.
    """
    if not isinstance(mapping, WeightConverter):
        return True  # another name
    first, *others = mapping.operations
    stacked = isinstance(first, MergeModulelist) and first.dim == 0
    return stacked and all(isinstance(each, Concatenate) and each.dim > 0 for each in others)
