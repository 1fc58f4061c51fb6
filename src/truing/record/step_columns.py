"""The metrics of a run's steps as columns."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from truing.errors import RecordError
from truing.record.index import SegmentRef
from truing.record.step_line import StepLine

SEGMENT = pa.struct({"file": pa.string(), "rows": pa.int64(), "sha256": pa.string()})

ROWS_AT_A_TIME = 10_000
"""Steps that are converted to columns at a time: some 200 MB."""


@dataclass(frozen=True, eq=False)
class StepColumns:
    """Metrics of steps, one row per step, in order."""

    stage: pa.ChunkedArray
    step: NDArray[np.int64]
    loss_label: pa.ChunkedArray
    segment: pa.ChunkedArray  # location of its rows: file, rows, sha256
    numbers: Mapping[str, NDArray[np.float64]]  # [n] each, NaN for a missing value

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def stages(self) -> list[tuple[str, int, int]]:
        """Each stage with its rows, ``[start, end)``."""
        names = self.stage.combine_chunks()
        changes_N = pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
        ends = [*(np.flatnonzero(changes_N) + 1).tolist(), len(names)] if len(names) else []
        return [(names[start].as_py(), start, end) for start, end in pairwise([0, *ends])]

    @cached_property
    def missing_steps(self) -> dict[str, int]:
        """The number of steps that are missing between others, of stages that miss any."""
        counts = {name: _gaps(self.step[start:end]) for name, start, end in self.stages}
        return {name: count for name, count in counts.items() if count}

    @cached_property
    def segment_refs(self) -> list[SegmentRef]:
        """The location of the rows of each step."""
        segment = self.segment.combine_chunks()
        if any(segment.field(name).null_count for name in ("file", "rows", "sha256")):
            raise RecordError("a line of steps.jsonl does not name its segment")
        parts = (segment.field(name).to_pylist() for name in ("file", "rows", "sha256"))
        return [
            SegmentRef(*values)
            for values in zip(self.stage.to_pylist(), self.step.tolist(), *parts, strict=True)
        ]

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one metric of all steps, [n]; all NaN if it is not recorded."""
        return self.numbers[name] if name in self.numbers else np.full(len(self), math.nan)

    def stage_of(self, row: int) -> str:
        """Return the stage of a row."""
        return self.stage[row].as_py()

    def numbers_at(self, row: int) -> dict[str, float]:
        """Return the metrics of one step without missing values."""
        numbers = ((name, float(values[row])) for name, values in self.numbers.items())
        return {name: value for name, value in numbers if not math.isnan(value)}

    def known_values(self, name: str) -> list[float]:
        """Return the values of one metric, without missing ones, in order."""
        values = self.column(name)
        return values[~np.isnan(values)].tolist()

    def select_stages(self, stages: Collection[str]) -> "StepColumns":
        """Return the steps of some stages."""
        rows = np.zeros(len(self), bool)
        for name, start, end in self.stages:
            rows[start:end] = name in stages
        return self._select(rows)

    def without_first(self, stage: str, steps: int) -> "StepColumns":
        """Return all steps but the first of one stage."""
        rows = np.ones(len(self), bool)
        for name, start, end in self.stages:
            if name == stage:
                rows[start:end] = self.step[start:end] >= steps
        return self._select(rows)

    def _select(self, rows: NDArray[np.bool_]) -> "StepColumns":
        if rows.all():
            return self
        selected = (array.filter(pa.array(rows)) for array in (self.stage, self.loss_label, self.segment))
        stage, label, segment = selected
        numbers = {name: values[rows] for name, values in self.numbers.items()}
        return StepColumns(stage, self.step[rows], label, segment, numbers)

    def find(self, stage: str, step: int) -> int | None:
        """Return the row of a step; None for an unknown one."""
        for name, start, end in self.stages:
            if name == stage and len(matches := np.flatnonzero(self.step[start:end] == step)):
                return start + int(matches[0])
        return None


def columns_of(rows: Iterable[StepLine]) -> StepColumns:
    """Return steps as columns; few of the rows are in memory at a time."""
    rows = iter(rows)
    parts = iter(lambda: list(islice(rows, ROWS_AT_A_TIME)), [])
    return concat_columns([_columns(part) for part in parts])


def _columns(rows: Sequence[StepLine]) -> StepColumns:
    rows_numbers = [
        {**row.metrics, **{f"seconds/{phase}": seconds for phase, seconds in row.seconds.items()}}
        for row in rows
    ]
    names = dict.fromkeys(name for numbers in rows_numbers for name in numbers)
    return StepColumns(
        pa.chunked_array([[row.stage for row in rows]], pa.string()),
        np.array([row.step for row in rows], np.int64),
        pa.chunked_array([[row.loss_label for row in rows]], pa.string()),
        _segments(rows),
        {name: np.array([numbers.get(name, math.nan) for numbers in rows_numbers], float) for name in names},
    )


def _segments(rows: Sequence[StepLine]) -> pa.ChunkedArray:
    """Return the location of the rows of each step."""
    try:
        return pa.chunked_array([[asdict(row.segment) for row in rows]], SEGMENT)
    except (pa.ArrowException, OverflowError) as error:
        raise RecordError(
            "a line of steps.jsonl names a segment that cannot be one",
            got=str(error)[:300],
            expected="its file, rows and checksum",
        ) from error


def concat_columns(parts: Sequence[StepColumns]) -> StepColumns:
    """Return concatenated columns."""
    names = dict.fromkeys(name for part in parts for name in part.numbers)

    def chunks(of: Callable[[StepColumns], pa.ChunkedArray], kind: pa.DataType) -> pa.ChunkedArray:
        return pa.chunked_array([chunk for part in parts for chunk in of(part).chunks], kind)

    return StepColumns(
        chunks(lambda part: part.stage, pa.string()),
        np.concatenate([np.empty(0, np.int64), *(part.step for part in parts)]),
        chunks(lambda part: part.loss_label, pa.string()),
        chunks(lambda part: part.segment, SEGMENT),
        {name: np.concatenate([part.column(name) for part in parts]) for name in names},
    )


def _gaps(step_N: NDArray[np.int64]) -> int:
    """Return how many numbers a sequence leaves out; it may go back, as after a rollback."""
    steps_N = np.diff(step_N)
    return int((steps_N[steps_N > 1] - 1).sum())
