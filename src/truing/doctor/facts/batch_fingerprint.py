"""A batch's fingerprint, to recognise it in later steps."""

import hashlib
from collections.abc import Collection, Iterable

from torch import Tensor

from truing.types.batch_facts import Batch

MAX_ROWS = 32
"""Samples in a fingerprint, the first by name: enough for any odds, and some 2 kB of the record."""


def batch_fingerprint(
    rows: Iterable[tuple[str, Tensor, int]],
    *,
    number: int,
    tasks: Collection[str],
    drawn: int,
    alike: int | None,
    total: int | None,
) -> Batch:
    """Return names and digests of a batch's samples.

    Args:
        rows: name, ids [T] and prompt length of each sample.
        number: of the batch, in order of time.
        tasks: digests of the tasks in it; copies of a task have one.
        drawn: tasks sampled for it; one may occur twice.
        alike: tasks of the data set that are a copy of one of these; None if unknown.
        total: number of tasks of the data set; None if unknown.
    """
    named = sorted(rows, key=lambda row: row[0])
    distinct = sorted(set(tasks))
    return {
        "number": number,
        "rows": [[name, _digest(ids[:prompt]), _digest(ids)] for name, ids, prompt in named[:MAX_ROWS]],
        "tasks": hashlib.sha256("".join(distinct).encode()).hexdigest()[:12],
        "distinct": len(distinct),
        "drawn": drawn,
        "alike": alike,
        "total": total,
    }


def _digest(ids_T: Tensor) -> str:
    return hashlib.sha256(ids_T.long().contiguous().numpy().tobytes()).hexdigest()[:12]
