"""All samples of a run as one table without their tokens: for lists, filters and counts.

A refresh reads only new rows. Rows are not fully verified (see ``column_reader``); the page of one sample
reads through ``RunReader``.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truing.errors import RecordError
from truing.record.column_reader import RowRange, read_columns, row_ranges
from truing.record.index import Index, SegmentRef
from truing.record.schema import SCHEMA
from truing.record.store import PARQUET, CompactedFile

DICTIONARY = pa.dictionary(pa.int32(), pa.string())  # texts that many samples share
COLUMNS = pa.schema(
    {
        "step_index": pa.int32(),  # index into the requested steps
        "stage": DICTIONARY,
        "step": pa.int64(),
        "sample_id": pa.string(),
        "rollout_id": pa.string(),
        "group_id": DICTIONARY,
        "task_id": DICTIONARY,
        "family": DICTIONARY,
        "status": DICTIONARY,
        "ended_by": DICTIONARY,
        "reward": pa.float64(),
        "truncated": pa.bool_(),
        "prompt_length": pa.int64(),
        "turns": pa.int64(),  # number of turns
        "turn_tokens": pa.int64(),  # of all turns: sampled, demonstrated and forced tokens
        "finish_reason": DICTIONARY,  # of the last turn; "" without turns
    }
)
SOURCE_COLUMNS = tuple(
    name for name in COLUMNS.names if name in SCHEMA.names and name not in ("stage", "step")
)
BATCH_ROWS = 2**17  # rows that are converted at a time, to bound memory
MAX_CHUNKS = 64  # of a grown table, before its chunks are combined

_TURN = SCHEMA.field("turns").type.value_type
_SPAN = [_TURN.get_field_index(name) for name in ("start", "end", "finish_reason")]


@dataclass(frozen=True)
class SampleSnapshot:
    """The result of a refresh; immutable."""

    table: pa.Table = field(default_factory=COLUMNS.empty_table)  # in the order of the steps
    unreadable: Mapping[int, str] = field(default_factory=dict[int, str])  # step → why it has no rows
    steps: tuple[SegmentRef, ...] = ()  # that were read or are unreadable
    unread: int = 0  # steps left for a later refresh


class SampleColumns:
    """The table of a run. Any thread may read ``snapshot``; refreshes run one at a time."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = Path(run_dir)
        self.snapshot = SampleSnapshot()
        self._groups = CompactedFile(self.run_dir / PARQUET)
        self._index: Index | None = None
        self._lock = Lock()

    def refresh(self, steps: Iterable[SegmentRef], seconds: float = math.inf) -> SampleSnapshot:
        """Update the table to these steps (all of steps.jsonl, in order) and return a snapshot.

        Steps with the same SHA-256 as before are not read again. Unreadable ones are tried again when the
        compacted file changes. After ``seconds`` the rest is left to the next call.
        """
        refs, deadline = tuple(steps), time.monotonic() + seconds
        with self._lock:
            while True:
                index = self._load_index()
                snapshot = self._reusable(refs, index)
                self.snapshot, self._index = self._extend(snapshot, refs, index, deadline), index
                # the run was compacted meanwhile: its segments are in the new file
                if not self.snapshot.unreadable or self._load_index() is index:
                    return self.snapshot

    def read_steps(
        self, steps: Sequence[SegmentRef], names: Sequence[str]
    ) -> Iterator[pa.Table | RecordError]:
        """Yield columns (names of ``schema.SCHEMA``) of the rows of each step, or its error.

        Consecutive steps of a row group are read together.
        """
        for group, ranges in groupby(row_ranges(steps, self._load_index()), attrgetter("group")):
            group_ranges = list(ranges)
            for part in [group_ranges] if group >= 0 else [[row_range] for row_range in group_ranges]:
                yield from self._read_group(part, names)

    def _read_group(self, part: Sequence[RowRange], names: Sequence[str]) -> Iterator[pa.Table | RecordError]:
        """Yield the same for ranges of one row group, or for one segment."""
        first = min(each.start for each in part)
        rows = max(each.start + each.rows for each in part) - first
        try:
            table = read_columns(
                self.run_dir, RowRange(part[0].refs, part[0].group, first, rows), self._groups, names
            )
        except RecordError as error:
            yield from (error for each in part for _ in each.refs)
            return
        for each in part:
            start = each.start - first
            for ref in each.refs:
                yield table.slice(start, ref.rows)
                start += ref.rows

    def _load_index(self) -> Index | None:
        """Return the index of the compacted file; None if it is absent or unreadable."""
        try:
            return self._groups.index()
        except RecordError:  # each of its steps is then reported as missing
            return None

    def _reusable(self, refs: tuple[SegmentRef, ...], index: Index | None) -> SampleSnapshot:
        """Return the snapshot up to the first step that changed or may be readable now."""
        snapshot = self.snapshot
        unchanged = len(snapshot.steps)
        if refs[:unchanged] != snapshot.steps:
            pairs = enumerate(zip(refs, snapshot.steps, strict=False))
            unchanged = next((at for at, (new, old) in pairs if new != old), min(unchanged, len(refs)))
        if index is not self._index:
            unchanged = min([unchanged, *snapshot.unreadable])
        unreadable = {at: reason for at, reason in snapshot.unreadable.items() if at < unchanged}
        rows = sum(ref.rows for at, ref in enumerate(snapshot.steps[:unchanged]) if at not in unreadable)
        return SampleSnapshot(snapshot.table.slice(0, rows), unreadable, snapshot.steps[:unchanged])

    def _extend(
        self, snapshot: SampleSnapshot, refs: tuple[SegmentRef, ...], index: Index | None, deadline: float
    ) -> SampleSnapshot:
        """Return the snapshot extended by further steps, as far as time allows."""
        count, parts, unreadable = len(snapshot.steps), [snapshot.table], dict(snapshot.unreadable)
        tables: list[pa.Table] = []
        step_indices: list[int] = []  # of the rows
        rows = 0
        for row_range in row_ranges(refs[count:], index):
            indices = range(count, count + len(row_range.refs))
            count = indices.stop
            try:
                tables.append(read_columns(self.run_dir, row_range, self._groups, SOURCE_COLUMNS))
                step_indices += indices
                rows += row_range.rows
            except RecordError as error:
                unreadable |= dict.fromkeys(indices, str(error))
            if rows >= BATCH_ROWS:
                parts.append(_build_table(tables, step_indices, refs))
                tables, step_indices, rows = [], [], 0
            if time.monotonic() > deadline:
                break
        if tables:
            parts.append(_build_table(tables, step_indices, refs))
        table = _concat(parts) if len(parts) > 1 else snapshot.table
        return SampleSnapshot(table, unreadable, refs[:count], len(refs) - count)


def _build_table(
    tables: Sequence[pa.Table], step_indices: Sequence[int], steps: Sequence[SegmentRef]
) -> pa.Table:
    """Return the table of rows that were read of these steps of ``steps``."""
    table = pa.concat_tables(tables)
    counts = [steps[at].rows for at in step_indices]
    stages = pa.array([steps[at].stage for at in step_indices]).dictionary_encode()
    columns: dict[str, pa.Array | pa.ChunkedArray] = {name: table[name] for name in SOURCE_COLUMNS}
    columns |= _turn_columns(table["turns"].combine_chunks())
    columns["step_index"] = pa.array(np.repeat(step_indices, counts), pa.int32())
    columns["step"] = pa.array(np.repeat([steps[at].step for at in step_indices], counts))
    columns["stage"] = stages.take(pa.array(np.repeat(np.arange(len(step_indices)), counts)))
    for name in COLUMNS.names:
        if COLUMNS.field(name).type == DICTIONARY and pa.types.is_string(columns[name].type):
            columns[name] = pc.dictionary_encode(columns[name])
    return pa.table({name: columns[name] for name in COLUMNS.names}, COLUMNS).combine_chunks()


def _turn_columns(turns: pa.Array) -> dict[str, pa.Array]:
    """Return, per sample, the number of turns, their tokens, and the last finish reason."""
    start, end, finish = (turns.flatten().flatten()[at] for at in _SPAN)
    counts = pc.list_value_length(turns).to_numpy()
    ends = np.cumsum(counts)
    tokens = np.concatenate([[0], np.cumsum(end.to_numpy() - start.to_numpy())])
    last = pa.array(ends - 1, mask=counts == 0)
    return {
        "turns": pa.array(counts, pa.int64()),
        "turn_tokens": pa.array(tokens[ends] - tokens[ends - counts]),
        "finish_reason": pc.fill_null(finish.take(last), ""),
    }


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return one table with unified dictionaries."""
    table = pa.concat_tables(tables).unify_dictionaries()
    return table.combine_chunks() if table["step_index"].num_chunks > MAX_CHUNKS else table
