"""Activation recomputation (gradient checkpointing), and the bytes a forward saves for its backward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from truing.distributed.sharded_tensors import local


def layers_of(causal: PreTrainedModel) -> list[nn.Module]:
    """Return the repeated layers of a model; none if its architecture does not mark them.

    A layer within another is skipped: the outer one recomputes it.
    """
    layers = [part for part in causal.get_decoder().modules() if isinstance(part, GradientCheckpointingLayer)]
    inner = {part for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if layer not in inner]


@contextmanager
def recompute_layers(
    causal: PreTrainedModel, recompute_context: Callable[[], AbstractContextManager[object]]
) -> Iterator[None]:
    """Within the block layers save only their inputs; the backward pass recomputes them.

    https://arxiv.org/abs/1604.06174. transformers does this in training mode only, which enables the model's
    own dropout.

    Args:
        causal: its layers are changed while the block runs.
        recompute_context: the context of the recomputation; the forward has its own.
    """
    layers = layers_of(causal)
    for layer in layers:
        checkpointed = partial(
            checkpoint,
            layer.forward,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), recompute_context()),
        )
        layer.forward = checkpointed  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@contextmanager
def count_saved_bytes(model: nn.Module) -> Iterator[Callable[[], int]]:
    """Count the bytes that forwards within the block save for their backward pass, without parameters."""
    held = (*model.parameters(), *model.buffers())
    own = {local(tensor).untyped_storage().data_ptr() for tensor in held}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        is_gathered = isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter)
        if storage.data_ptr() not in own and not is_gathered:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(saved.values())
