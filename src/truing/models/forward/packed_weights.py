"""Weights in the layout that oneDNN reads fastest, those of layers with the same input side by side."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from truing.models.forward.onednn_linear import OneDnnLinear, linear_product, onednn_computes
from truing.utils.memory import bytes_free

SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that most architectures give the same input."""


@contextmanager
def packed_weights(model: nn.Module) -> Iterator[None]:
    """Within the block products without gradients read copies of the weights, which must not change.

    The products are the same: of a layer alone to the last bit, of layers side by side to rounding. Where
    memory is short nothing is packed.
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
    """Layers as one: the first that is given an input computes what the others will ask for."""

    def __init__(self, layers: Sequence[OneDnnLinear]) -> None:
        self._layers, self._widths = layers, [layer.out_features for layer in layers]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(_one([each.weight for each in layers]))
        self._bias = None if layers[0].bias is None else _one([each.bias for each in layers])
        self._input: Tensor | None = None
        self._found: dict[nn.Linear, Tensor] = {}

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """What the layer gives for x [..., in]; all layers ask once for the same x before it changes."""
        if x is not self._input or layer not in self._found:
            parts = linear_product(x.contiguous(), self._weight, self._bias)
            split = torch.split_with_sizes(parts, self._widths, dim=-1)
            self._input, self._found = x, dict(zip(self._layers, split, strict=True))
        found = self._found.pop(layer)
        if not self._found:
            self._input = None
        return found


def _one(parts: Sequence[Tensor]) -> Tensor:
    """Parts, one below the other."""
    return torch.cat([part.detach() for part in parts]) if len(parts) > 1 else parts[0].detach()


def _groups(model: nn.Module) -> Iterator[list[OneDnnLinear]]:
    """The layers that oneDNN computes, together where they are given the same input."""
    seen: set[nn.Module] = set()
    for parent in model.modules():
        for names in SAME_INPUT:
            group = [getattr(parent, name, None) for name in names]
            alike = {_kind(layer) for layer in group}
            if len(alike) == 1 and None not in alike:
                seen.update(group)
                yield group
    yield from ([layer] for layer in model.modules() if _kind(layer) and layer not in seen)


def _kind(layer: object) -> tuple[int, bool] | None:
    """What layers must have in common to be joined: their input's width, and whether they add a bias."""
    if type(layer) is not OneDnnLinear or not onednn_computes(layer.weight, layer.weight):
        return None
    return layer.in_features, layer.bias is not None
