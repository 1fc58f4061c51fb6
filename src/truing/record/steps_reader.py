"""Reads the metrics of a run as columns, incrementally.

A line of steps.jsonl has a hundred metrics and further facts. Curves need some metrics of all lines: Arrow
reads these some ten times faster than ``RunReader.steps``, which reads everything.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from numpy.typing import NDArray

from truing.errors import RecordError
from truing.record.events import Event
from truing.record.malformed import damaged_line
from truing.record.step_columns import SEGMENT, StepColumns, columns_of, concat_columns
from truing.record.step_line import StepLine
from truing.record.store import STEPS
from truing.types.step_table import StepNumbers
from truing.utils.parse import parse_finite_json
from truing.utils.regular_files import open_regular

NUMBER_TABLES = ("metrics", "seconds")
"""Tables of numbers in a line. The seconds of a phase are the column ``seconds/PHASE``."""

NUMBERS_EVENT = "numbers"
"""The event that declares metric names, written before the first line that has them."""

BLOCK_BYTES = 4 << 20
"""Bytes that Arrow parses at a time. With a longer line, the lines of its block are parsed one by one."""

READ_BYTES = 4 * BLOCK_BYTES
"""Bytes that are read at a time. The file is not memory-mapped: a writer may truncate it, and reading a map
beyond the end of its file kills the process."""

TAIL_BYTES = 256
"""Last bytes that were read: if they differ now, the file was truncated and continued."""


def number_names(numbers: StepNumbers) -> list[str]:
    """Return the columns that a step fills."""
    return [*numbers.metrics, *(f"seconds/{phase}" for phase in numbers.seconds)]


def declared_numbers(events: Iterable[Event]) -> set[str]:
    """Return the columns that the events of a run declare."""
    return {name for event in events if event.kind == NUMBERS_EVENT for name in event.payload["names"]}


class StepsReader:
    """Columns of a run that may grow: ``refresh`` reads the new lines."""

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / STEPS
        self.columns = concat_columns([])
        self._parts: list[StepColumns] = []
        self._names: set[str] = set()
        self._end, self._tail = 0, b""
        self._starts: list[NDArray[np.int64]] = []  # where lines begin

    def refresh(self, names: Collection[str]) -> bool:
        """Read new lines and return whether there were any.

        Args:
            names: all columns that lines may have (``declared_numbers``). Others are left out. Without names
            every line is searched for its own, which takes ten times as long.
        """
        try:
            handle = open_regular(self.path)
        except OSError as error:
            raise RecordError(
                f"cannot read {self.path}", got=error.strerror, expected="a file of a run"
            ) from error
        with handle:
            reread = self._was_truncated(handle) or not set(names) <= self._names
            if reread:
                self._parts, self._starts, self._end, self._tail = [], [], 0, b""
                self._names = set(names)
            has_new = self._read_added(handle)
        if not (reread or has_new):
            return False
        self._parts = [concat_columns(self._parts)]
        self._starts = [np.concatenate([np.empty(0, np.int64), *self._starts])]
        self.columns = self._parts[0]
        return True

    def step_row(self, row: int) -> StepLine:
        """Return the whole record of one step."""
        with open(self.path, "rb") as handle:
            handle.seek(int(self._starts[0][row]))
            return _parse_line(handle.readline(), row + 1, self.path)

    def _was_truncated(self, handle: BinaryIO) -> bool:
        handle.seek(max(0, self._end - TAIL_BYTES))
        return handle.read(len(self._tail)) != self._tail

    def _read_added(self, handle: BinaryIO) -> bool:
        """Add the complete new lines; an incomplete last one is not recorded."""
        before, names = self._end, sorted(self._names)
        for lines in _whole_lines(handle, before):
            starts = _line_starts(lines)
            self._parts.append(_parse(lines, starts, sum(map(len, self._starts)), names, self.path))
            self._starts.append(starts + self._end)
            self._end, self._tail = self._end + len(lines), (self._tail + lines[-TAIL_BYTES:])[-TAIL_BYTES:]
        return self._end > before


def _whole_lines(handle: BinaryIO, start: int) -> Iterator[bytes]:
    """Yield blocks of complete lines from an offset on."""
    size = READ_BYTES
    while True:
        handle.seek(start)
        data = handle.read(size)
        if end := data.rfind(b"\n") + 1:
            yield data[:end]
            start, size = start + end, READ_BYTES
        elif len(data) < size:  # an incomplete last line, or none
            return
        else:
            size *= 2


def _line_starts(lines: bytes) -> NDArray[np.int64]:
    """Return the offset of each line; ``find`` is five times as fast as numpy here."""
    starts = [0]
    while at := lines.find(b"\n", starts[-1]) + 1:
        starts.append(at)
    return np.array(starts[:-1], np.int64)


def _parse(
    lines: bytes, starts: NDArray[np.int64], before: int, names: Sequence[str], path: Path
) -> StepColumns:
    """Return lines as columns, by Arrow; one by one if names are unknown or a number is infinite."""
    columns = _parse_arrow(lines, starts, names) if names else None
    return _parse_lines(lines.split(b"\n")[:-1], before, path) if columns is None else columns


def _parse_arrow(lines: bytes, starts: NDArray[np.int64], names: Sequence[str]) -> StepColumns | None:
    """Return all lines as columns; None if Arrow cannot (infinity is a string in JSON).

    Arrow 26 crashes on a line ``null`` and counts two objects in a line as two lines: lines must begin with
    an object, and Arrow must find as many.
    """
    if not (np.frombuffer(lines, np.uint8)[starts] == ord("{")).all():
        return None
    kinds = {kind: [] for kind in NUMBER_TABLES}
    for name in names:
        kind = "seconds" if name.startswith("seconds/") else "metrics"
        kinds[kind].append((name.removeprefix("seconds/"), pa.float64()))
    facts = {"stage": pa.string(), "step": pa.int64(), "loss_label": pa.string(), "segment": SEGMENT}
    schema = pa.schema({**facts, **{kind: pa.struct(fields) for kind, fields in kinds.items()}})
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(lines), pj.ReadOptions(block_size=BLOCK_BYTES), options)
    except pa.ArrowInvalid:
        return None
    if len(table) != len(starts) or any(table[name].null_count for name in (*facts, *NUMBER_TABLES)):
        return None  # a malformed line: the slow path names it
    numbers: dict[str, NDArray[np.float64]] = {}
    for kind in NUMBER_TABLES:
        flat = table[kind].combine_chunks().flatten()
        for (name, _), values in zip(kinds[kind], flat, strict=False):
            if values.null_count < len(values):
                column = f"seconds/{name}" if kind == "seconds" else name
                numbers[column] = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return StepColumns(
        table["stage"],
        table["step"].to_numpy(),
        table["loss_label"],
        table["segment"],
        numbers,
    )


def _parse_lines(lines: Sequence[bytes], before: int, path: Path) -> StepColumns:
    return columns_of(
        [_parse_line(text, number, path) for number, text in enumerate(lines, start=before + 1)]
    )


def _parse_line(text: bytes, number: int, path: Path) -> StepLine:
    with damaged_line(path, number):
        return StepLine.from_json(parse_finite_json(text))
