"""The numbers of a run as columns: read once, and then only what was added.

A line of steps.jsonl holds a hundred numbers and more facts. Whoever draws curves wants some of the numbers
of all lines: Arrow reads these some ten times faster than ``RunReader.steps``, which has everything.
"""

import json
import math
import mmap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from numpy.typing import NDArray

from truing.errors import RecordError
from truing.record.lines import floats_from_json
from truing.record.reader import Event
from truing.record.rows import StepRow
from truing.record.store import STEPS

KINDS = ("metrics", "seconds")
"""What a line holds of numbers by name. A phase's seconds are the column ``seconds/PHASE``."""

NUMBERS = "numbers"
"""The event that names numbers, written before the first line that has them."""

BLOCK = 4 << 20
"""Bytes that Arrow parses at a time. Were a line longer, all would be read one by one."""

TAIL = 256
"""Last bytes of what was read: where they are others now, the file was cut back and written on."""


def number_names(row: StepRow) -> list[str]:
    """The columns that an update fills."""
    return [*row.metrics, *(f"seconds/{phase}" for phase in row.seconds)]


def numbers_named(events: Iterable[Event]) -> set[str]:
    """The columns that a run has, as its events name them."""
    return {name for event in events if event.kind == NUMBERS for name in event.payload["names"]}


@dataclass(frozen=True, eq=False)
class Columns:
    """Numbers of updates, one row each, in the order that they were made."""

    stage: pa.ChunkedArray
    step: NDArray[np.int64]
    label: pa.ChunkedArray
    numbers: Mapping[str, NDArray[np.float64]]  # [n] each, NaN where an update has none

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def stages(self) -> list[tuple[str, int, int]]:
        """Each stage with the rows it has, ``[start, end)``."""
        names, found = self.stage.to_pylist(), list[tuple[str, int, int]]()
        starts = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
        for start, end in pairwise([*starts, len(names)]):
            found.append((names[start], start, end))
        return found

    def column(self, name: str) -> NDArray[np.float64]:
        """One number of all updates, [n]; all NaN where none has it."""
        return self.numbers[name] if name in self.numbers else np.full(len(self), math.nan)

    def stage_of(self, row: int) -> str:
        """The stage of a row."""
        return self.stage[row].as_py()

    def moments(self) -> list["Moment"]:
        """One by one, as whoever asks for a few numbers of each wants them."""
        stages, labels = self.stage.to_pylist(), self.label.to_pylist()
        metrics = {name: values for name, values in self.numbers.items() if not name.startswith("seconds/")}
        return [Moment(stages[i], labels[i], Numbers(metrics, i)) for i in range(len(self))]

    def find(self, stage: str, step: int) -> int:
        """The row of an update."""
        for name, start, end in self.stages:
            if name == stage and len(found := np.flatnonzero(self.step[start:end] == step)):
                return start + int(found[0])
        raise RecordError(f"the run holds no step {step} of stage {stage}")


@dataclass(frozen=True)
class Moment:
    """An update by its numbers alone."""

    stage: str
    loss_label: str
    metrics: Mapping[str, float]


class Numbers(Mapping[str, float]):
    """The metrics of one update, as columns have them; what it has none of is absent."""

    def __init__(self, columns: Mapping[str, NDArray[np.float64]], row: int) -> None:
        self._columns, self._row = columns, row

    def __getitem__(self, name: str) -> float:
        value = self._columns[name][self._row]
        if math.isnan(value):
            raise KeyError(name)
        return float(value)

    def __iter__(self) -> Iterator[str]:
        return (name for name, values in self._columns.items() if not math.isnan(values[self._row]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Series:
    """Columns of a run that may go on: ``refresh`` reads what was added since."""

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / STEPS
        self.columns = _joined([])
        self._parts: list[Columns] = []
        self._names: set[str] = set()
        self._end, self._tail = 0, b""
        self._starts: NDArray[np.int64] | None = None

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
            anew = self._was_cut(handle) or not set(names) <= self._names
            if anew:
                self._parts, self._end, self._tail, self._names = [], 0, b"", set(names)
            added = self._read_on(handle)
        if not (anew or added):
            return False
        self._parts = [_joined(self._parts)]
        self.columns, self._starts = self._parts[0], None
        return True

    def line(self, row: int) -> StepRow:
        """Everything that is on record of one update."""
        if self._starts is None:
            self._starts = _line_starts(self.path, self._end)
        with open(self.path, "rb") as handle:
            handle.seek(int(self._starts[row]))
            return StepRow.from_json(json.loads(handle.readline()))

    def _was_cut(self, handle: BinaryIO) -> bool:
        handle.seek(max(0, self._end - TAIL))
        return handle.read(len(self._tail)) != self._tail

    def _read_on(self, handle: BinaryIO) -> bool:
        """Add the whole lines behind what was read; a torn last one was never recorded."""
        handle.seek(0, 2)
        if handle.tell() <= self._end:
            return False
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            end = whole.rfind(b"\n", self._end) + 1
            if end:
                self._parts.append(_parse(whole, self._end, end, sorted(self._names), self.path))
                self._end, self._tail = end, whole[max(0, end - TAIL) : end]
            return bool(end)


def _parse(whole: mmap.mmap, start: int, end: int, names: Sequence[str], path: Path) -> Columns:
    """Lines as columns, by Arrow; one by one where their names are not known, or a number is infinite."""
    data = memoryview(whole)[start:end]
    try:
        read = _by_arrow(pa.py_buffer(data), names) if names else None
        return read or _line_by_line(bytes(data).splitlines(), path)
    finally:
        data.release()


def _by_arrow(data: pa.Buffer, names: Sequence[str]) -> Columns | None:
    """All lines at once; None where Arrow cannot: JSON has no infinity, so a text stands for it."""
    kinds = {kind: [] for kind in KINDS}
    for name in names:
        kind = "seconds" if name.startswith("seconds/") else "metrics"
        kinds[kind].append((name.removeprefix("seconds/"), pa.float64()))
    facts = {"stage": pa.string(), "step": pa.int64(), "loss_label": pa.string()}
    schema = pa.schema({**facts, **{kind: pa.struct(fields) for kind, fields in kinds.items()}})
    how = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=BLOCK), how)
    except pa.ArrowInvalid:
        return None
    if any(table[name].null_count for name in (*facts, *KINDS)):  # a line that is none: it will be named
        return None
    numbers: dict[str, NDArray[np.float64]] = {}
    for kind in KINDS:
        flat = table[kind].combine_chunks().flatten()
        for (name, _), values in zip(kinds[kind], flat, strict=False):
            if values.null_count < len(values):
                shown = f"seconds/{name}" if kind == "seconds" else name
                numbers[shown] = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return Columns(table["stage"], table["step"].to_numpy(), table["loss_label"], numbers)


def _line_by_line(lines: Sequence[bytes], path: Path) -> Columns:
    read = [_numbers(line, number, path) for number, line in enumerate(lines, start=1)]
    names = dict.fromkeys(name for _, numbers in read for name in numbers)
    columns = {name: np.array([numbers.get(name, math.nan) for _, numbers in read]) for name in names}
    said = [line for line, _ in read]
    return Columns(
        pa.chunked_array([[line["stage"] for line in said]], pa.string()),
        np.array([line["step"] for line in said], np.int64),
        pa.chunked_array([[line["loss_label"] for line in said]], pa.string()),
        columns,
    )


def _numbers(text: bytes, number: int, path: Path) -> tuple[dict[str, Any], dict[str, float]]:
    try:
        line = json.loads(text)
        seconds = {f"seconds/{name}": value for name, value in line["seconds"].items()}
        return line, floats_from_json({**line["metrics"], **seconds})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"line {number} of what was added to {path} is damaged", got=repr(error), expected="an update"
        ) from error


def _joined(parts: Sequence[Columns]) -> Columns:
    """Columns one below the other."""
    names = dict.fromkeys(name for part in parts for name in part.numbers)
    empty = pa.chunked_array([[]], pa.string())
    return Columns(
        pa.chunked_array([chunk for part in parts for chunk in part.stage.chunks], pa.string())
        if parts
        else empty,
        np.concatenate([np.empty(0, np.int64), *(part.step for part in parts)]),
        pa.chunked_array([chunk for part in parts for chunk in part.label.chunks], pa.string())
        if parts
        else empty,
        {name: np.concatenate([part.column(name) for part in parts]) for name in names},
    )


def _line_starts(path: Path, end: int) -> NDArray[np.int64]:
    """Where each line begins."""
    starts, place = [np.zeros(1, np.int64)], 0
    with open(path, "rb") as handle:
        for data in _blocks(handle, end):
            newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
            starts.append(newlines + place + 1)
            place += len(data)
    return np.concatenate(starts)


def _blocks(handle: BinaryIO, end: int) -> Iterator[bytes]:
    while (place := handle.tell()) < end:
        yield handle.read(min(BLOCK, end - place))
