"""Reads some columns of the rows of steps, from segments or the compacted file, without their tokens.

SHA-256 and content digests cover the tokens too, so they are not verified compacted: pages of the compacted
file have checksums; of a segment, columns, offsets and number of rows are checked. ``RunReader`` verifies
everything.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from truing.errors import RecordError
from truing.record.index import Index, SegmentRef
from truing.record.schema import SCHEMA
from truing.record.store import PARQUET, READ_ERRORS, ROLLOUTS, CompactedFile, segment_path


class RowRange(NamedTuple):
    """Consecutive rows of several steps in one row group, or the rows of one step."""

    refs: Sequence[SegmentRef]
    group: int  # of the compacted file; −1 for the one step's own segment
    start: int  # the first row in the group
    rows: int


def row_ranges(steps: Sequence[SegmentRef], index: Index | None) -> Iterator[RowRange]:
    """Yield the row ranges of steps, in order; a new range begins where rows are not consecutive.

    A step whose number of rows in the compacted file differs from its line is read from its segment.
    """
    rows = np.array([ref.rows for ref in steps], np.int64)
    group, start = np.full(len(steps), -1), np.zeros(len(steps), np.int64)
    if index and len(index.table):
        rows_at = index.find([ref.sha256 for ref in steps])
        compacted = (rows_at >= 0) & (index.column("rows")[rows_at] == rows)
        group, start = np.where(compacted, index.column("group")[rows_at], -1), index.column("start")[rows_at]
    continues = (group[1:] >= 0) & (group[1:] == group[:-1]) & (start[1:] == start[:-1] + rows[:-1])
    for first, end in pairwise([0, *(np.flatnonzero(~continues) + 1).tolist(), len(steps)]):
        if first < end:
            yield RowRange(steps[first:end], int(group[first]), int(start[first]), int(rows[first:end].sum()))


def read_columns(run_dir: Path, row_range: RowRange, groups: CompactedFile, names: Sequence[str]) -> pa.Table:
    """Return columns of the rows of a range; raise a RecordError if they cannot be read."""
    first = row_range.refs[0]
    try:
        if row_range.group < 0:
            table = _read_segment_columns(segment_path(run_dir, first.file), names)
        else:
            table = groups.columns(row_range.group, names).slice(row_range.start, row_range.rows)
    except FileNotFoundError as error:
        raise RecordError(
            f"the rows of step {first.step} of stage {first.stage} are missing",
            expected=f"{ROLLOUTS}/{first.file}, or rows of that SHA-256 in {PARQUET}",
        ) from error
    except READ_ERRORS as error:
        raise RecordError(
            f"the rows of step {first.step} of stage {first.stage} cannot be read", got=repr(error)
        ) from error
    if table.num_rows != row_range.rows:
        raise RecordError(
            f"the rows of step {first.step} of stage {first.stage} are not those of its line",
            got=table.num_rows,
            expected=row_range.rows,
        )
    return table


def _read_segment_columns(path: Path, names: Sequence[str]) -> pa.Table:
    options = pa.ipc.IpcReadOptions(
        included_fields=[SCHEMA.get_field_index(name) for name in names], use_threads=False
    )
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file, options=options).read_all()
    if any(not table.schema.field(name).equals(SCHEMA.field(name)) for name in names):
        raise ValueError("columns that no version of this file had")
    table.validate(full=True)
    return table.select(list(names))
