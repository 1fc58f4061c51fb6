"""What is said of every sample of a run but its tokens, as one table: for lists, filters and counts.

Of a run that grows, only what is new is read. What is read is not verified in full, as ``columns`` says; what
is shown of one sample is to come from ``RunReader``.
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
from truing.record.segments import SCHEMA
from truing.record.store import PARQUET, CompactedFile

DICTIONARY = pa.dictionary(pa.int32(), pa.string())  # texts that many samples share
COLUMNS = pa.schema(
    {
        "update": pa.int32(),  # which of the steps that were asked for
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
        "turns": pa.int64(),  # how many
        "turn_tokens": pa.int64(),  # of all turns: what was drawn or demonstrated, and forced ones among it
        "finish_reason": DICTIONARY,  # of the last turn; "" where there is none
    }
)
SOURCE_COLUMNS = tuple(
    name for name in COLUMNS.names if name in SCHEMA.names and name not in ("stage", "step")
)
BATCH_ROWS = 2**17  # rows that are read before they are brought into form, so that few are held in both
MAX_CHUNKS = 64  # of a table that grew so often, before it is made whole again

_TURN = SCHEMA.field("turns").type.value_type
_SPAN = [_TURN.get_field_index(name) for name in ("start", "end", "finish_reason")]


@dataclass(frozen=True)
class SampleSnapshot:
    """What a refresh found; nobody changes it afterwards."""

    table: pa.Table = field(default_factory=COLUMNS.empty_table)  # in the order of the steps
    unreadable: Mapping[int, str] = field(default_factory=dict[int, str])  # update → why it has no rows
    steps: tuple[SegmentRef, ...] = ()  # that were read, or found unreadable
    unread: int = 0  # steps that no time was left for


class SampleColumns:
    """The table of a run. Any thread may take ``known``; where several refresh, one does at a time."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = Path(run_dir)
        self.snapshot = SampleSnapshot()
        self._groups = CompactedFile(self.run_dir / PARQUET)
        self._index: Index | None = None
        self._lock = Lock()

    def refresh(self, steps: Iterable[SegmentRef], seconds: float = math.inf) -> SampleSnapshot:
        """Bring the table to these steps: all that steps.jsonl names, in its order.

        As far as they are the steps of before, by SHA-256, nothing is read again. One that cannot be read is
        tried again once the compacted file is another. After ``seconds`` the rest is left to the next call.
        """
        wanted, until = tuple(steps), time.monotonic() + seconds
        with self._lock:
            while True:
                index = self._load_index()
                known = self._kept(wanted, index)
                self.snapshot, self._index = self._extended(known, wanted, index, until), index
                # a run that was compacted while this read it: its segments are in the new file
                if not self.snapshot.unreadable or self._load_index() is index:
                    return self.snapshot

    def read_steps(
        self, steps: Sequence[SegmentRef], names: Sequence[str]
    ) -> Iterator[pa.Table | RecordError]:
        """Columns of the rows of each step, as ``segments.SCHEMA`` names them, or why it has none.

        They are read as they are asked for: those of a row group, where they follow each other, at one time.
        """
        for group, found in groupby(row_ranges(steps, self._load_index()), attrgetter("group")):
            whole = list(found)
            for part in [whole] if group >= 0 else [[each] for each in whole]:
                yield from self._of_group(part, names)

    def _of_group(self, part: Sequence[RowRange], names: Sequence[str]) -> Iterator[pa.Table | RecordError]:
        """The same of stretches that lie in one row group, or of one that is a step's own segment."""
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
            for place in each.refs:
                yield table.slice(start, place.rows)
                start += place.rows

    def _load_index(self) -> Index | None:
        """Where steps lie in the compacted file; None where there is none that can be read."""
        try:
            return self._groups.index()
        except RecordError:  # each of its steps is then found missing, and told so
            return None

    def _kept(self, wanted: tuple[SegmentRef, ...], index: Index | None) -> SampleSnapshot:
        """What is known already, up to the first step that is another, or that may be readable now."""
        known = self.snapshot
        same = len(known.steps)
        if wanted[:same] != known.steps:
            pairs = enumerate(zip(wanted, known.steps, strict=False))
            same = next((at for at, (new, old) in pairs if new != old), min(same, len(wanted)))
        if index is not self._index:
            same = min([same, *known.unreadable])
        unreadable = {at: why for at, why in known.unreadable.items() if at < same}
        rows = sum(place.rows for at, place in enumerate(known.steps[:same]) if at not in unreadable)
        return SampleSnapshot(known.table.slice(0, rows), unreadable, known.steps[:same])

    def _extended(
        self, known: SampleSnapshot, wanted: tuple[SegmentRef, ...], index: Index | None, until: float
    ) -> SampleSnapshot:
        """What is known with what follows it, as far as there is time."""
        done, parts, unreadable = len(known.steps), [known.table], dict(known.unreadable)
        read: list[pa.Table] = []
        updates: list[int] = []  # whose rows those are
        rows = 0
        for stretch in row_ranges(wanted[done:], index):
            here = range(done, done + len(stretch.refs))
            done = here.stop
            try:
                read.append(read_columns(self.run_dir, stretch, self._groups, SOURCE_COLUMNS))
                updates += here
                rows += stretch.rows
            except RecordError as error:
                unreadable |= dict.fromkeys(here, str(error))
            if rows >= BATCH_ROWS:
                parts.append(_build_table(read, updates, wanted))
                read, updates, rows = [], [], 0
            if time.monotonic() > until:
                break
        if read:
            parts.append(_build_table(read, updates, wanted))
        table = _concat(parts) if len(parts) > 1 else known.table
        return SampleSnapshot(table, unreadable, wanted[:done], len(wanted) - done)


def _build_table(tables: Sequence[pa.Table], updates: Sequence[int], steps: Sequence[SegmentRef]) -> pa.Table:
    """Rows as they were read, of these updates of ``steps``, with what is told of each."""
    read = pa.concat_tables(tables)
    counts = [steps[at].rows for at in updates]
    stages = pa.array([steps[at].stage for at in updates]).dictionary_encode()
    columns: dict[str, pa.Array | pa.ChunkedArray] = {name: read[name] for name in SOURCE_COLUMNS}
    columns |= _turn_columns(read["turns"].combine_chunks())
    columns["update"] = pa.array(np.repeat(updates, counts), pa.int32())
    columns["step"] = pa.array(np.repeat([steps[at].step for at in updates], counts))
    columns["stage"] = stages.take(pa.array(np.repeat(np.arange(len(updates)), counts)))
    for name in COLUMNS.names:
        if COLUMNS.field(name).type == DICTIONARY and pa.types.is_string(columns[name].type):
            columns[name] = pc.dictionary_encode(columns[name])
    return pa.table({name: columns[name] for name in COLUMNS.names}, COLUMNS).combine_chunks()


def _turn_columns(turns: pa.Array) -> dict[str, pa.Array]:
    """How many turns each sample has, their tokens, and how the last one ended."""
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
    """Tables as one, in which texts that are shared have one dictionary."""
    whole = pa.concat_tables(tables).unify_dictionaries()
    return whole.combine_chunks() if whole["update"].num_chunks > MAX_CHUNKS else whole
