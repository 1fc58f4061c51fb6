"""The workers' answer to a probe, by the checkpoint's names; layers that they divide are joined."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from truing.engines.vllm.proof.expected_layers import Expected
from truing.engines.vllm.worker.truing_vllm_shards import INPUTS, UNKNOWN, WHOLE
from truing.errors import EngineError, PublicationError, TruingError


@dataclass
class ProbeAnswer:
    """The engine's responses, by layer in the checkpoint; ``foreign`` are adapters that the trainer lacks."""

    linear: dict[str, Tensor] = field(default_factory=dict)
    held: dict[str, Tensor] = field(default_factory=dict)  # of the weights themselves, where they can be read
    tables: dict[str, Tensor] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    experts: dict[str, Tensor] = field(default_factory=dict)
    unproven: dict[str, str] = field(default_factory=dict)  # why experts cannot be probed
    down: dict[str, Tensor] = field(default_factory=dict)
    delta: dict[str, Tensor] = field(default_factory=dict)
    foreign: dict[str, Tensor] = field(default_factory=dict)


def held_before(probes: Sequence[Mapping[str, Any]], published: Expected) -> list[tuple[str, Expected]]:
    """Return what a server held before it loaded anything, as other weights; [] if that cannot be read."""
    if not probes:
        return []
    try:
        answer = read_probe(probes, published)
    except TruingError:  # of another model, or not initialised; its weights are proven after the load
        return []
    linear = {name: (values, published.linear[name][1]) for name, values in answer.linear.items()}
    experts = {
        name: (values, published.experts[name][1])
        for name, values in answer.experts.items()
        if name in published.experts
    }
    vectors = {name: (values, values.abs()) for name, values in answer.vectors.items()}
    held = Expected(linear, vectors, experts)
    return [("those that the server started with: it loaded nothing", held)]


def read_probe(
    probes: Sequence[Mapping[str, Any]], expected: Expected, whole: Expected | None = None
) -> ProbeAnswer:
    """Return the answer of all workers, its fused layers split as in the checkpoint.

    Args:
        probes: of each worker.
        expected: the responses of the layers that were probed.
        whole: those of all layers, for their lengths; by default ``expected`` has all.

    Raises:
        EngineError: It is not an answer of a worker.
        PublicationError: Workers differ where they should not.
    """
    try:
        return _read(probes, expected, whole or expected)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            "the worker's answer to a probe cannot be read",
            got=f"{type(error).__name__}: {error} in {str(probes)[:200]}",
            expected="names and float64 values in base64, by layer",
            remedy="restart the engine; `truing explain vllm` lists the versions known to work",
        ) from error


def _read(probes: Sequence[Mapping[str, Any]], expected: Expected, whole: Expected) -> ProbeAnswer:
    answer = ProbeAnswer()
    lengths = {name: len(response) for name, (response, _) in whole.linear.items()}
    parts_of: dict[str, Sequence[str]] = {}
    for fused, shares in _by_name(probes, "linear"):
        parts_of[fused] = shares[0]["parts"]
        answer.linear |= _split(joined(fused, shares), parts_of[fused], lengths)
        if all(share["held"] for share in shares):
            answer.held |= _split(joined(fused, shares, "held"), parts_of[fused], lengths)
    for name, shares in _by_name(probes, "tables"):
        if name in lengths:
            answer.tables[name] = joined(name, shares)
    for name, shares in _by_name(probes, "experts"):
        if why := shares[0]["why"]:
            answer.unproven[name] = why
        else:
            answer.experts[name] = joined(name, shares)
    for name, shares in _by_name(probes, "vectors"):
        layer, _, kind = name.rpartition(".")
        names = [name] if name in expected.vectors else [f"{part}.{kind}" for part in parts_of.get(layer, ())]
        sizes = {part: len(values) for part, (values, _) in expected.vectors.items()}
        answer.vectors |= _split(joined(name, shares), names, sizes)
    for name, shares in _by_name(probes, "delta"):
        _read_adapter(answer, name, shares, expected, lengths)
    return answer


def _by_name(
    probes: Sequence[Mapping[str, Any]], kind: str
) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Yield each layer with the answers of all workers."""
    for name in probes[0][kind]:
        yield name, [probe[kind][name] for probe in probes]


def _read_adapter(
    answer: ProbeAnswer,
    name: str,
    shares: Sequence[Mapping[str, Any]],
    expected: Expected,
    lengths: Mapping[str, int],
) -> None:
    """Add an adapted layer; A r is known by part unless the engine slices the layer in another way."""
    parts, delta = shares[0]["parts"], joined(name, shares)
    known = [part for part in parts if part in expected.delta]
    if not known:
        answer.foreign[parts[0]] = delta
        return
    for part, values in _split(delta, parts, lengths).items():
        (answer.delta if part in known else answer.foreign)[part] = values
    if len(shares[0]["down"]) == len(parts):
        for slice_, part in enumerate(parts):
            if part in known:
                down = joined_down(name, shares, slice_)
                answer.down[part] = _of_length(down, len(expected.down[part][0]))


def _of_length(values: Tensor, length: int) -> Tensor:
    """Return values without those of a slot's unused rank, or with zeros for a rank that it lacks."""
    return functional.pad(values, (0, length - len(values)))


def _split(values: Tensor, parts: Sequence[str], lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """Return the values of each part of a fused layer; vLLM may add rows at the end."""
    found, start = {}, 0
    for name in parts:
        if name in lengths:
            found[name] = values[start : start + lengths[name]]
            start += lengths[name]
    return found


def joined(name: str, shares: Sequence[Mapping[str, Any]], key: str = "values") -> Tensor:
    """Return the float64 responses [n] of a layer from those of each worker.

    Args:
        name: of the layer.
        shares: per worker, ``values`` in base64, and the layer's ``division``.
        key: of the values.

    Raises:
        PublicationError: Workers that hold the same weights differ, or the division is not known.
    """
    divided = shares[0]["division"]
    if divided == UNKNOWN:
        raise PublicationError(
            f"{name} is divided among the server's workers in a way that cannot be proven",
            got=f"{len(shares)} workers",
            expected="q, k and v, or parts of equal size",
            remedy="start the server without tensor parallelism",
        )
    values = [decoded(share[key]) for share in shares]
    if divided == WHOLE:
        return _copy(name, values)
    if divided == INPUTS:
        return torch.stack(values).sum(0)
    lengths = [[length for length, _ in share["division"]] for share in shares]
    of_workers = [each.split(sizes) for each, sizes in zip(values, lengths, strict=True)]
    parts = []
    for part, (_, copies) in enumerate(divided):
        held = [worker[part] for worker in of_workers]
        parts += [_copy(name, held[first : first + copies]) for first in range(0, len(held), copies)]
    return torch.cat(parts)


def joined_down(name: str, shares: Sequence[Mapping[str, Any]], slice_: int) -> Tensor:
    """Return A r [rank] of a slice of an adapted layer, whose A is divided as the layer's inputs only."""
    divided = INPUTS if shares[0]["division"] == INPUTS else WHOLE
    return joined(name, [{"values": share["down"][slice_], "division": divided} for share in shares])


def decoded(text: str) -> Tensor:
    """Return the float64 values [n] that the worker encoded."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").copy())


def _copy(name: str, copies: Sequence[Tensor]) -> Tensor:
    """Return what workers hold in common."""
    for worker, other in enumerate(copies):
        if not np.array_equal(other, copies[0], equal_nan=True):
            raise PublicationError(
                f"workers of the server that share {name} compute it with different weights",
                got=f"a response of worker {worker} of those that differs from the first one's",
                expected="the same response",
                remedy="restart the server, or start it without tensor parallelism",
            )
    return copies[0]
