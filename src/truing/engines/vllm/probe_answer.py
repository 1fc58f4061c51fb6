"""The worker's answer to a probe, by the names of the checkpoint's layers."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truing.engines.vllm.expected_responses import Expected
from truing.errors import EngineError


@dataclass
class ProbeAnswer:
    """The engine's responses, by layer in the checkpoint; ``foreign`` are adapters that the trainer lacks."""

    linear: dict[str, Tensor] = field(default_factory=dict)
    tables: dict[str, Tensor] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    experts: dict[str, Tensor] = field(default_factory=dict)
    unproven: dict[str, str] = field(default_factory=dict)  # why experts cannot be probed
    down: dict[str, Tensor] = field(default_factory=dict)
    delta: dict[str, Tensor] = field(default_factory=dict)
    foreign: dict[str, Tensor] = field(default_factory=dict)


def read_probe(probe: Mapping[str, Any], expected: Expected) -> ProbeAnswer:
    """Return the answer, its fused layers split as ``expected`` has them.

    Raises:
        EngineError: It is no answer of the worker.
    """
    try:
        return _read(probe, expected)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            "the worker's answer to a probe cannot be read",
            got=f"{type(error).__name__}: {error} in {str(probe)[:200]}",
            expected="names and float64 values in base64, by layer",
            remedy="restart the engine; docs/vllm.md lists the versions known to work",
        ) from error


def _read(probe: Mapping[str, Any], expected: Expected) -> ProbeAnswer:
    answer = ProbeAnswer()
    lengths = {name: len(response) for name, (response, _) in expected.linear.items()}
    parts_of: dict[str, Sequence[str]] = {}
    for fused, (parts, text) in probe["linear"].items():
        parts_of[fused] = parts
        answer.linear |= _split(_decoded(text), parts, lengths)
    answer.tables = {name: _decoded(text) for name, text in probe["tables"].items() if name in lengths}
    for name, (text, why) in probe["experts"].items():
        if why:
            answer.unproven[name] = why
        else:
            answer.experts[name] = _decoded(text)
    for name, text in probe["vectors"].items():
        layer, _, kind = name.rpartition(".")
        names = [name] if name in expected.vectors else [f"{part}.{kind}" for part in parts_of.get(layer, ())]
        sizes = {part: len(values) for part, values in expected.vectors.items()}
        answer.vectors |= _split(_decoded(text), names, sizes)
    for parts, downs, text in probe["delta"].values():
        _read_adapter(answer, parts, [_decoded(down) for down in downs], _decoded(text), expected)
    return answer


def _read_adapter(
    answer: ProbeAnswer, parts: Sequence[str], downs: Sequence[Tensor], delta: Tensor, expected: Expected
) -> None:
    """Add an adapted layer; A r is known by part unless the engine slices the layer in another way."""
    known = [part for part in parts if part in expected.delta]
    if not known:
        answer.foreign[parts[0]] = delta
        return
    lengths = {name: len(each) for name, (each, _) in expected.linear.items()}
    for part, values in _split(delta, parts, lengths).items():
        (answer.delta if part in known else answer.foreign)[part] = values
    if len(downs) == len(parts):
        for part, down in zip(parts, downs, strict=True):
            if part in known:
                answer.down[part] = down[: len(expected.down[part][0])]


def _split(values: Tensor, parts: Sequence[str], lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """Return the values of each part of a fused layer; vLLM may add rows at the end."""
    found, start = {}, 0
    for name in parts:
        if name in lengths:
            found[name] = values[start : start + lengths[name]]
            start += lengths[name]
    return found


def _decoded(text: str) -> Tensor:
    """Return the float64 values [n] that the worker encoded."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").copy())
