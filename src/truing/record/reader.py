"""Reads a run directory, also one that is still being written, and believes no damaged segment."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from truing.errors import RecordError
from truing.record.rows import SampleRow, StepRow
from truing.record.store import EVENTS, PARQUET, RECIPE, RUN, STEPS, CompactedFile, load_rows
from truing.utils.format import with_count
from truing.utils.jsonl import is_being_written, read_jsonl

Line = TypeVar("Line")


@dataclass(frozen=True)
class Event:
    """Something that happened during a run."""

    time: float  # seconds since 1970, UTC
    kind: str
    payload: Mapping[str, Any]

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "Event":
        """An event from its line."""
        return cls(**line)


def has_writer(run_dir: Path) -> bool:
    """Whether a trainer has a run directory open at this moment, or whoever else writes it.

    False where there is no run; a RecordError where the directory may not be read. A trainer that starts in
    the instant in which this asks tries again.
    """
    return is_being_written(Path(run_dir) / STEPS)


class RunReader:
    """Everything that a run directory says; each call reads it afresh, but for the row group it read last."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = Path(run_dir)
        if not self.run_dir.is_dir():
            raise RecordError(
                f"{run_dir} is no run directory", expected="a directory that `truing train` wrote"
            )
        self._groups = CompactedFile(self.run_dir / PARQUET)

    def run_json(self) -> dict[str, Any]:
        """The facts of run.json."""
        try:
            return json.loads(self._text(RUN))
        except ValueError as error:
            raise RecordError(
                f"{self.run_dir / RUN} is damaged", got=error, expected="a JSON object"
            ) from error

    def recipe(self) -> str:
        """The recipe's text."""
        return self._text(RECIPE)

    def steps(self) -> list[StepRow]:
        """Every recorded update, in the order that they were made."""
        return self._lines(STEPS, StepRow.from_json)

    def check_complete(self) -> None:
        """Raise where rows are kept of updates that steps.jsonl has lost."""
        if lost := self._groups.count_unlisted(self.steps()):
            raise RecordError(
                f"{self.run_dir / STEPS} is not whole",
                got=with_count(lost, "update has rows and no line", "updates have rows and no line"),
                expected="a line for each update",
                remedy="restore the file from a copy",
            )

    def events(self) -> list[Event]:
        """Every recorded event, oldest first."""
        return self._lines(EVENTS, Event.from_json)

    def samples(self, stage: str, step: int) -> tuple[SampleRow, ...]:
        """The rows of an update, verified by checksum."""
        steps = self.steps()
        for row in steps:
            if (row.stage, row.step) == (stage, step):
                return self.rows(row)
        last = f"{steps[-1].stage} {steps[-1].step}" if steps else "no step at all"
        raise RecordError(f"{self.run_dir} holds no step {step} of stage {stage}", expected=f"up to {last}")

    def rows(self, row: StepRow) -> tuple[SampleRow, ...]:
        """The rows of an update whose line is known, verified by checksum."""
        return load_rows(self.run_dir, row, self._groups)

    def _lines(self, name: str, parse: Callable[[Mapping[str, Any]], Line]) -> list[Line]:
        path = self.run_dir / name
        try:
            return [parse(line) for line in read_jsonl(path)]
        except (KeyError, TypeError) as error:
            raise RecordError(f"a line of {path} lacks what it should hold", got=repr(error)) from error

    def _text(self, name: str) -> str:
        path = self.run_dir / name
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise RecordError(
                f"cannot read {path}", got=error.strerror, expected="a file of a run"
            ) from error
