"""Layers of an engine that a format of fewer bits explains better than what was published.

In another dtype than float32 the bound of one output hides int8. Over all outputs of a layer it shows:
rounding is independent of what quantization changes, and brings no right layer nearer to quantized weights.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from truing.engines.vllm.proof.changed_weights import FORMATS
from truing.engines.vllm.proof.expected_responses import Responses

ONE_ROUNDING = 1 / 3
"""Units of eps that a rounded output is off, as a share of its layer's: 0.22 if it is rounded once."""

NEARER = 0.5
"""Share of a layer's difference that a format may leave to explain it."""

OUTPUTS = 32
"""The fewest outputs of a layer that tell."""


def nearer_format(
    found: Mapping[str, Tensor], published: Responses, eps: float, rounded: Callable[[str], Responses]
) -> tuple[str, list[str]]:
    """Return the format that explains most layers, and these layers; ("", []) if none is nearer.

    Args:
        found: the engine's responses, by layer.
        published: the trainer's.
        eps: of the engine's dtype.
        rounded: from a format of ``FORMATS`` to the responses of the trainer's weights in it.
    """
    differences = {name: _apart(values, published[name][0]) for name, values in found.items()}
    suspected = [
        name
        for name, difference in differences.items()
        if difference > ONE_ROUNDING * eps and len(found[name]) >= OUTPUTS
    ]
    nearer: dict[str, list[str]] = {}
    for words in FORMATS if suspected else ():
        responses = rounded(words)
        nearer[words] = [
            name for name in suspected if _apart(found[name], responses[name][0]) < NEARER * differences[name]
        ]
    words = max(nearer, key=lambda words: len(nearer[words]), default="")
    return (words, nearer[words]) if words and nearer[words] else ("", [])


def _apart(values: Tensor, response: Tensor) -> float:
    """Return the length of a difference, relative to the expected response's; inf of other shapes."""
    if values.shape != response.shape:
        return float("inf")
    return float((values - response).norm() / response.norm().clamp(min=torch.finfo(response.dtype).tiny))
