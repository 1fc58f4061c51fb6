"""What a forward keeps for its backward pass, and how to keep less: layers that are computed twice."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


def layers_of(causal: PreTrainedModel) -> list[nn.Module]:
    """The repeated layers of a model; none where its architecture does not name them.

    A layer within another is left out: the outer one computes it again.
    """
    layers = [part for part in causal.get_decoder().modules() if isinstance(part, GradientCheckpointingLayer)]
    inner = {part for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if layer not in inner]


@contextmanager
def recompute_layers(
    causal: PreTrainedModel, recompute_context: Callable[[], AbstractContextManager[object]]
) -> Iterator[None]:
    """Layers of a forward within keep their inputs alone; the backward pass computes them again.

    https://arxiv.org/abs/1604.06174. transformers would do so in training mode only, which switches a
    model's own dropout on.

    Args:
        causal: its layers are changed while the block runs.
        again: a context for what is computed again: a forward within the block has one of its own.
    """
    layers = layers_of(causal)
    for layer in layers:
        twice = partial(
            checkpoint,
            layer.forward,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), recompute_context()),
        )
        layer.forward = twice  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@contextmanager
def count_saved_bytes(model: nn.Module) -> Iterator[Callable[[], int]]:
    """Count the bytes that forwards within the block keep for their backward pass, parameters aside."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(kept.values())
