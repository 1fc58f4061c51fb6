"""Why layers of somebody else's engine differ from the expected weights, in words."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from truing.engines.served.layers import MATRICES, SAME, Judged, Layer, Response
from truing.engines.served.verdict import Share
from truing.engines.vllm.proof.expected_layers import Expected
from truing.engines.vllm.proof.layer_causes import Known, WrongLayers

OTHERWISE = (
    "they are none of these weights, nor these rounded, quantized, scaled, in another order or transposed"
)

REORDERED = "its rows are in another order, within the layer or the fused one that vLLM makes of several"

Changed = Callable[[str], Expected]
"""From one of ``FORMATS`` to the expected weights in it."""

Transposed = Callable[[str], Tensor | None]
"""From a layer's name to Wᵀ r of its expected weight [outputs]; None if it is not square."""


def causes(
    judged: Sequence[Judged],
    whole: Mapping[str, Share],
    expected: Expected,
    others: Mapping[str, Expected],
    changed: Changed,
    transposed: Transposed,
) -> dict[str, list[Layer]]:
    """Return the layers that are wrong, by why; ``whole`` is λ over all layers, by candidate."""
    found: dict[str, list[Layer]] = {}
    wrong = [each for each in judged if each.is_wrong]
    for each in wrong:
        if each.state == "other":
            found.setdefault(f"they are those of {each.other}", []).append(each.layer)
        elif each.state == "between":
            found.setdefault(_share(each, whole[each.other].of_update), []).append(each.layer)
    known = [each.layer for each in wrong if each.state == "wrong"]
    shuffled = _shuffled(known, expected)
    for layer in known:
        why = _cause(layer, expected, others, changed, transposed)
        why = REORDERED if why == OTHERWISE and layer in shuffled else why
        found.setdefault(why, []).append(layer)
    return found


def between(other: str, share: float) -> str:
    """Return what a share of a change means."""
    twice = ": it is applied twice, or scaled by another number" if abs(share - 2) < SAME else ""
    return f"they have {share:.3g} times the change from {other}{twice}"


def _share(judged: Judged, share: float) -> str:
    """Return what a layer between two candidates has, as all of them or by itself."""
    return (
        between(judged.other, share)
        if judged.has(share)
        else f"they lie between {judged.other} and the expected weights, each elsewhere"
    )


def _cause(
    layer: Layer,
    expected: Expected,
    others: Mapping[str, Expected],
    changed: Changed,
    transposed: Transposed,
) -> str:
    """Return why one layer is wrong that has no candidate's weights."""
    published = layer.of(expected)
    assert published is not None
    if not torch.isfinite(layer.values).all():
        return "it computes numbers that are not finite"
    if misplaced := _misplaced(layer, expected, transposed):
        return misplaced
    known: Known[Mapping[str, Response]] = Known(
        OTHERWISE,
        zero="they are zero, or missing",
        earlier=[(f"those of {name}", _one(layer, each)) for name, each in others.items()],
        changed=lambda words: _one(layer, changed(words)),
    )
    key = layer.words
    return WrongLayers({key: layer.values}, {key: published}, layer.rounding).cause(known)


def _misplaced(layer: Layer, expected: Expected, transposed: Transposed) -> str:
    """Return which other matrix or adapter of the expected weights a layer has; "" if none."""
    is_matrix, is_adapter = layer.kind in MATRICES, layer.kind == "adapter"
    turned = transposed(layer.name) if is_matrix else None
    if turned is not None and layer.rounding.explains(layer.values, turned, _bound(layer, expected, turned)):
        return "its matrix is transposed"
    of_others = expected.linear if is_matrix else expected.delta if is_adapter else {}
    for name, (response, size) in of_others.items():
        if name != layer.name and response.any() and layer.rounding.explains(layer.values, response, size):
            return f"it has the {'adapter' if is_adapter else 'weights'} of {name}"
    return ""


def _bound(layer: Layer, expected: Expected, values: Tensor) -> Tensor:
    """Return the largest Σ|W| of a layer's rows, for each output."""
    return expected.linear[layer.name][1].max().expand_as(values)


def _one(layer: Layer, candidate: Expected) -> dict[str, Response]:
    response = layer.of(candidate)
    return {} if response is None else {layer.words: response}


def _shuffled(layers: Sequence[Layer], expected: Expected) -> list[Layer]:
    """Return the layers whose rows are the expected ones in another order, alone or with their neighbours."""
    found = [layer for layer in layers if _is_shuffled([layer], expected)]
    beside: dict[tuple[str, str], list[Layer]] = {}
    for layer in layers:
        beside.setdefault((layer.name.rpartition(".")[0], layer.kind), []).append(layer)
    for group in beside.values():
        if len(group) > 1 and _is_shuffled(group, expected):
            found += group
    return found


def _is_shuffled(layers: Sequence[Layer], expected: Expected) -> bool:
    responses = [layer.of(expected) for layer in layers]
    assert all(each is not None for each in responses)
    response = torch.cat([each[0] for each in responses if each is not None])
    size = torch.cat([each[1] for each in responses if each is not None])
    values, rounding = torch.cat([layer.values for layer in layers]), layers[0].rounding
    if values.shape != response.shape or len(values) < 2:
        return False
    return rounding.explains(values.sort().values, response.sort().values, size.max().expand_as(size))
