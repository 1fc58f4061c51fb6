"""The numbers of a run as columns: read once, and then only what was added.

A line of steps.jsonl holds a hundred numbers and more facts. Whoever draws curves wants some of the numbers
of all lines: Arrow reads these some ten times faster than ``RunReader.steps``, which has everything.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from numpy.typing import NDArray

from truing.errors import RecordError
from truing.record.reader import Event
from truing.record.rows import StepRow
from truing.record.store import STEPS
from truing.record.update_columns import SEGMENT, UpdateColumns, columns_of, concat_columns

NUMBER_TABLES = ("metrics", "seconds")
"""What a line holds of numbers by name. A phase's seconds are the column ``seconds/PHASE``."""

NUMBERS_EVENT = "numbers"
"""The event that names numbers, written before the first line that has them."""

BLOCK_BYTES = 4 << 20
"""Bytes that Arrow parses at a time. Were a line longer, those read with it would be read one by one."""

READ_BYTES = 4 * BLOCK_BYTES
"""Bytes that are read at a time; memory for more is asked for anew. The file is not mapped: a writer
may cut it back, and whoever reads a map beyond its file's end is ended."""

TAIL_BYTES = 256
"""Last bytes of what was read: where they are others now, the file was cut back and written on."""


def number_names(row: StepRow) -> list[str]:
    """The columns that an update fills."""
    return [*row.metrics, *(f"seconds/{phase}" for phase in row.seconds)]


def declared_numbers(events: Iterable[Event]) -> set[str]:
    """The columns that a run has, as its events name them."""
    return {name for event in events if event.kind == NUMBERS_EVENT for name in event.payload["names"]}


class StepsReader:
    """Columns of a run that may go on: ``refresh`` reads what was added since."""

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / STEPS
        self.columns = concat_columns([])
        self._parts: list[UpdateColumns] = []
        self._names: set[str] = set()
        self._end, self._tail = 0, b""
        self._starts: list[NDArray[np.int64]] = []  # where lines begin

    def refresh(self, names: Collection[str]) -> bool:
        """Read what was added; whether there was anything.

        Args:
            names: of all numbers that lines may have (``numbers_named``). Others are left out, unless
                there are none: then every line is looked through for its own, which takes ten times as long.
        """
        try:
            handle = open(self.path, "rb")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise RecordError(
                f"cannot read {self.path}", got=error.strerror, expected="a file of a run"
            ) from error
        with handle:
            anew = self._was_truncated(handle) or not set(names) <= self._names
            if anew:
                self._parts, self._starts, self._end, self._tail = [], [], 0, b""
                self._names = set(names)
            added = self._read_added(handle)
        if not (anew or added):
            return False
        self._parts = [concat_columns(self._parts)]
        self._starts = [np.concatenate([np.empty(0, np.int64), *self._starts])]
        self.columns = self._parts[0]
        return True

    def step_row(self, row: int) -> StepRow:
        """Everything that is on record of one update."""
        with open(self.path, "rb") as handle:
            handle.seek(int(self._starts[0][row]))
            return _parse_line(handle.readline(), row + 1, self.path)

    def _was_truncated(self, handle: BinaryIO) -> bool:
        handle.seek(max(0, self._end - TAIL_BYTES))
        return handle.read(len(self._tail)) != self._tail

    def _read_added(self, handle: BinaryIO) -> bool:
        """Add the whole lines behind what was read; a torn last one was never recorded."""
        before, names = self._end, sorted(self._names)
        for lines in _whole_lines(handle, before):
            starts = _line_starts(lines)
            self._parts.append(_parse(lines, starts, sum(map(len, self._starts)), names, self.path))
            self._starts.append(starts + self._end)
            self._end, self._tail = self._end + len(lines), (self._tail + lines[-TAIL_BYTES:])[-TAIL_BYTES:]
        return self._end > before


def _whole_lines(handle: BinaryIO, start: int) -> Iterator[bytes]:
    """The whole lines from a place on, many at a time."""
    size = READ_BYTES
    while True:
        handle.seek(start)
        data = handle.read(size)
        if end := data.rfind(b"\n") + 1:
            yield data[:end]
            start, size = start + end, READ_BYTES
        elif len(data) < size:  # a torn last line, or none
            return
        else:
            size *= 2


def _line_starts(lines: bytes) -> NDArray[np.int64]:
    """Where each line begins; ``find`` is five times as fast as comparing bytes by numpy."""
    starts = [0]
    while at := lines.find(b"\n", starts[-1]) + 1:
        starts.append(at)
    return np.array(starts[:-1], np.int64)


def _parse(
    lines: bytes, starts: NDArray[np.int64], before: int, names: Sequence[str], path: Path
) -> UpdateColumns:
    """Lines as columns, by Arrow; one by one where their names are not known, or a number is infinite."""
    read = _parse_arrow(lines, starts, names) if names else None
    return _parse_lines(lines.split(b"\n")[:-1], before, path) if read is None else read


def _parse_arrow(lines: bytes, starts: NDArray[np.int64], names: Sequence[str]) -> UpdateColumns | None:
    """All lines at once; None where Arrow cannot: JSON has no infinity, so a text stands for it.

    Arrow 26 dies of a line that is ``null``, and takes two objects in a line for two lines: it is given lines
    that begin as objects do, and has to find as many.
    """
    if not (np.frombuffer(lines, np.uint8)[starts] == ord("{")).all():
        return None
    kinds = {kind: [] for kind in NUMBER_TABLES}
    for name in names:
        kind = "seconds" if name.startswith("seconds/") else "metrics"
        kinds[kind].append((name.removeprefix("seconds/"), pa.float64()))
    facts = {"stage": pa.string(), "step": pa.int64(), "loss_label": pa.string(), "segment": SEGMENT}
    schema = pa.schema({**facts, **{kind: pa.struct(fields) for kind, fields in kinds.items()}})
    how = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(lines), pj.ReadOptions(block_size=BLOCK_BYTES), how)
    except pa.ArrowInvalid:
        return None
    if len(table) != len(starts) or any(table[name].null_count for name in (*facts, *NUMBER_TABLES)):
        return None  # there is a line that is none: it will be named
    numbers: dict[str, NDArray[np.float64]] = {}
    for kind in NUMBER_TABLES:
        flat = table[kind].combine_chunks().flatten()
        for (name, _), values in zip(kinds[kind], flat, strict=False):
            if values.null_count < len(values):
                shown = f"seconds/{name}" if kind == "seconds" else name
                numbers[shown] = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return UpdateColumns(
        table["stage"], table["step"].to_numpy(), table["loss_label"], table["segment"], numbers
    )


def _parse_lines(lines: Sequence[bytes], before: int, path: Path) -> UpdateColumns:
    return columns_of(
        [_parse_line(text, number, path) for number, text in enumerate(lines, start=before + 1)]
    )


def _parse_line(text: bytes, number: int, path: Path) -> StepRow:
    try:
        return StepRow.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(
            f"line {number} of {path} is damaged", got=repr(error)[:500], expected="an update"
        ) from error
