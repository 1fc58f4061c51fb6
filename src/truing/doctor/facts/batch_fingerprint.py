"""A batch's fingerprint, to recognise it in later updates."""

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import Tensor

MAX_ROWS = 32
"""Rows in a fingerprint, the first by name: enough for any odds, and some 2 kB of the record."""


def batch_fingerprint(
    rows: Iterable[tuple[str, Tensor, int]], *, number: int, drawn: int, total: int | None
) -> dict[str, Any]:
    """Return names and digests of a batch's rows.

    Args:
        rows: name, ids [T] and prompt length of each row.
        number: of the batch, in order of time.
        drawn: tasks sampled for it; one may occur twice.
        total: number of tasks; None if unknown.
    """
    named = sorted(rows, key=lambda row: row[0])
    prompts = sorted({_digest(ids[:prompt]) for _, ids, prompt in named})
    return {
        "number": number,
        "rows": [[name, _digest(ids[:prompt]), _digest(ids)] for name, ids, prompt in named[:MAX_ROWS]],
        "prompts": hashlib.sha256("".join(prompts).encode()).hexdigest()[:12],
        "distinct": len(prompts),
        "drawn": drawn,
        "total": total,
    }


def _digest(ids_T: Tensor) -> str:
    return hashlib.sha256(ids_T.long().contiguous().numpy().tobytes()).hexdigest()[:12]
