"""Why layers of somebody else's engine differ from the expected weights, in words."""

from collections.abc import Callable, Mapping, Sequence

import torch

from truing.engines.served.layers import MATRICES, SAME, Judged, Layer
from truing.engines.served.verdict import Share
from truing.engines.vllm.proof.expected_layers import Expected, Responses
from truing.engines.vllm.proof.layer_causes import Known, WrongLayers

OTHERWISE = "they are none of these weights, nor these rounded, quantized or scaled"

Changed = Callable[[str], Expected]
"""From one of ``FORMATS`` to the expected weights in it."""


def causes(
    judged: Sequence[Judged],
    whole: Mapping[str, Share],
    expected: Expected,
    others: Mapping[str, Expected],
    changed: Changed,
) -> dict[str, list[Layer]]:
    """Return the layers that are wrong, by why; ``whole`` is λ over all layers, by candidate."""
    found: dict[str, list[Layer]] = {}
    for each in judged:
        if each.state == "other":
            found.setdefault(f"they are those of {each.other}", []).append(each.layer)
        elif each.state == "between":
            found.setdefault(_share(each, whole[each.other].of_change), []).append(each.layer)
        elif each.state == "wrong":
            found.setdefault(_cause(each.layer, expected, others, changed), []).append(each.layer)
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
) -> str:
    """Return why one layer is wrong that has no candidate's weights."""
    published = layer.of(expected)
    assert published is not None
    if not torch.isfinite(layer.values).all():
        return "it computes numbers that are not finite"
    if misplaced := _misplaced(layer, expected):
        return misplaced
    known = Known(
        OTHERWISE,
        zero="they are zero, or missing",
        earlier=[(f"those of {name}", _one(layer, each)) for name, each in others.items()],
        changed=lambda words: _one(layer, changed(words)),
    )
    key = layer.words
    return WrongLayers({key: layer.values}, {key: published}, layer.rounding).cause(known)


def _misplaced(layer: Layer, expected: Expected) -> str:
    """Return which other matrix or adapter of the expected weights a layer has; "" if none."""
    is_matrix, is_adapter = layer.kind in MATRICES, layer.kind == "adapter"
    of_others = expected.linear if is_matrix else expected.delta if is_adapter else {}
    for name, (response, size) in of_others.items():
        if name != layer.name and response.any() and layer.rounding.explains(layer.values, response, size):
            return f"it has the {'adapter' if is_adapter else 'weights'} of {name}"
    return ""


def _one(layer: Layer, candidate: Expected) -> Responses:
    response = layer.of(candidate)
    return {} if response is None else {layer.words: response}
