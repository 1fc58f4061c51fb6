"""The numbers of a run's updates as columns."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from truing.errors import RecordError
from truing.record.index import Place

SEGMENT = pa.struct({"file": pa.string(), "rows": pa.int64(), "sha256": pa.string()})


@dataclass(frozen=True, eq=False)
class Columns:
    """Numbers of updates, one row each, in the order that they were made."""

    stage: pa.ChunkedArray
    step: NDArray[np.int64]
    label: pa.ChunkedArray
    segment: pa.ChunkedArray  # where its rows lie: file, rows, sha256
    numbers: Mapping[str, NDArray[np.float64]]  # [n] each, NaN where an update has none

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def stages(self) -> list[tuple[str, int, int]]:
        """Each stage with the rows it has, ``[start, end)``."""
        names, found = self.stage.to_pylist(), list[tuple[str, int, int]]()
        starts = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
        for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
            found.append((names[start], start, end))
        return found

    @cached_property
    def places(self) -> list[Place]:
        """Where the rows of each update lie."""
        segment = self.segment.combine_chunks()
        parts = (segment.field(name).to_pylist() for name in ("file", "rows", "sha256"))
        return [Place(*each) for each in zip(self.stage.to_pylist(), self.step.tolist(), *parts, strict=True)]

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


def joined(parts: Sequence[Columns]) -> Columns:
    """Columns one below the other."""
    names = dict.fromkeys(name for part in parts for name in part.numbers)

    def chunks(of: Callable[[Columns], pa.ChunkedArray], kind: pa.DataType) -> pa.ChunkedArray:
        return pa.chunked_array([chunk for part in parts for chunk in of(part).chunks], kind)

    return Columns(
        chunks(lambda part: part.stage, pa.string()),
        np.concatenate([np.empty(0, np.int64), *(part.step for part in parts)]),
        chunks(lambda part: part.label, pa.string()),
        chunks(lambda part: part.segment, SEGMENT),
        {name: np.concatenate([part.column(name) for part in parts]) for name in names},
    )
