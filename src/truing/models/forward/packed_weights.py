"""Weights in oneDNN's fastest layout; layers with the same input share one packed weight."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from truing.models.forward.onednn_linear import OneDnnLinear, linear_product, onednn_computes
from truing.utils.memory import bytes_free

SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that have the same input in most architectures."""


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Within the block products without gradients use packed copies of the weights, which must not change.

    A single packed layer gives the same bits; joined layers agree up to rounding. If memory is short, nothing
    is packed.
    """
    groups = list(_groups(model))
    if 2 * sum(layer.weight.nbytes for group in groups for layer in group) >= bytes_free(torch.device("cpu")):
        groups = []
    try:
        for group in groups:
            joined = JoinedLinears(group)
            for layer in group:
                layer.packed = joined
        yield
    finally:
        for layer in (layer for group in groups for layer in group):
            layer.packed = None


class JoinedLinears:
    """Layers with one packed weight: the first call for an input computes the outputs of all layers."""

    def __init__(self, layers: Sequence[OneDnnLinear]) -> None:
        self._layers, self._widths = layers, [layer.out_features for layer in layers]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(_stack_rows([each.weight for each in layers]))
        self._bias = None if layers[0].bias is None else _stack_rows([each.bias for each in layers])
        self._input: Tensor | None = None
        self._outputs: dict[nn.Linear, Tensor] = {}

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """Return the layer's output for x [..., in]; each layer must be called once per x."""
        if x is not self._input or layer not in self._outputs:
            parts = linear_product(x.contiguous(), self._weight, self._bias)
            split = torch.split_with_sizes(parts, self._widths, dim=-1)
            self._input, self._outputs = x, dict(zip(self._layers, split, strict=True))
        output = self._outputs.pop(layer)
        if not self._outputs:
            self._input = None
        return output


def _stack_rows(parts: Sequence[Tensor]) -> Tensor:
    """Return the parts concatenated by rows."""
    return torch.cat([part.detach() for part in parts]) if len(parts) > 1 else parts[0].detach()


def _groups(model: nn.Module) -> Iterator[list[OneDnnLinear]]:
    """Yield the layers that oneDNN computes, grouped if they have the same input."""
    seen: set[nn.Module] = set()
    for parent in model.modules():
        for names in SAME_INPUT:
            parts = [getattr(parent, name, None) for name in names]
            group = [part for part in parts if isinstance(part, OneDnnLinear)]
            alike = {_kind(layer) for layer in group}
            if len(group) == len(names) and len(alike) == 1 and None not in alike:
                seen.update(group)
                yield group
    for layer in model.modules():
        if isinstance(layer, OneDnnLinear) and _kind(layer) and layer not in seen:
            yield [layer]


def _kind(layer: object) -> tuple[int, bool] | None:
    """Return what joined layers must have in common: input width and bias; None if oneDNN does not apply."""
    if type(layer) is not OneDnnLinear or not onednn_computes(layer.weight, layer.weight):
        return None
    return layer.in_features, layer.bias is not None
