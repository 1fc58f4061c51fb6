"""The responses of a layer that tensor parallelism divides among workers, joined into those of the layer."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truing.engines.vllm.worker.truing_vllm_shards import INPUTS, UNKNOWN, WHOLE
from truing.errors import PublicationError

REMEDY = "restart the server, or start it without tensor parallelism"


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
                remedy=REMEDY,
            )
    return copies[0]
