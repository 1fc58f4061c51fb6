"""What is remembered of a batch, so that a later one can be told from it."""

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import Tensor

MAX_ROWS = 32
"""Rows of a batch, the first by name: enough for any odds, and some 2 kB of the record."""


def batch_fingerprint(
    rows: Iterable[tuple[str, Tensor, int]], *, number: int, drawn: int, total: int | None
) -> dict[str, Any]:
    """Names and digests of a batch's rows.

    Args:
        rows: of each its name, its ids [T] and the length of its prompt.
        number: of the batch, in the order of time.
        drawn: tasks that were drawn for it; one may have been drawn twice.
        total: tasks that there are; None where nobody knows.
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
