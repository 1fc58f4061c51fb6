"""Reads a run incrementally: a refresh reads only new records."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from truing.analysis.valid_events import read_events
from truing.errors import RecordError
from truing.record.events import Event
from truing.record.lost_steps import lost_steps
from truing.record.reader import RunReader, has_writer
from truing.record.step_columns import StepColumns
from truing.record.step_line import StepLine
from truing.record.steps_reader import StepsReader, declared_numbers
from truing.record.store import EVENTS, STEPS
from truing.types.step_table import StepTable
from truing.utils.format import with_count


class IncrementalReader:
    """A run directory with its events and columns as of the last ``refresh``."""

    def __init__(self, run_dir: Path) -> None:
        self.reader = RunReader(run_dir)
        self.run_dir = self.reader.run_dir
        self.steps_reader = StepsReader(self.run_dir)
        self.events: list[Event] = []
        self.has_writer = (
            False  # whether a process had it open before the events were read, so none is missed
        )
        self.malformed: list[str] = []  # malformed lines of events.jsonl, with the reason
        self._state = (-1, -1)

    @cached_property
    def run_json(self) -> dict[str, Any]:
        """run.json, which is written again when a run is made longer."""
        return self.reader.run_json()

    def run_value(self, *path: str) -> Any:
        """Return the value at a path of keys in run.json; None if it is absent."""
        value: Any = self.run_json
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    @property
    def columns(self) -> StepColumns:
        """The metrics of every step."""
        return self.steps_reader.columns

    def step_row(self, row: int) -> StepLine:
        """Return the whole record of one step by its row."""
        return self.steps_reader.step_row(row)

    def table(self, line: StepLine) -> StepTable:
        """Return a step with its samples, verified by checksum."""
        return self.reader.table(line)

    @property
    def missing_steps(self) -> list[str]:
        """The lines that events.jsonl and steps.jsonl have lost, the latter by stage."""
        noted = self.step_row(len(self.columns) - 1).events if len(self.columns) else 0
        # steps are read after events: what is written may have come between
        known = noted if self.has_writer else len(self.events) + len(self.malformed)
        lost = [f"{EVENTS} lacks {with_count(noted - known, 'line')}: restore it from a copy"]
        return (lost if known < noted else []) + [
            f"{STEPS} lacks {with_count(count, 'step')} of {stage}: restore it from a copy"
            for stage, count in lost_steps(self.columns, self.events).items()
        ]

    def refresh(self) -> bool:
        """Read new records and return whether there were any."""
        self.has_writer = has_writer(self.run_dir)
        path = self.run_dir / EVENTS
        try:
            status = os.stat(path)
        except OSError as error:
            raise RecordError(
                f"cannot read {path}", got=error.strerror, expected="a file of a run"
            ) from error
        state = status.st_size, status.st_mtime_ns
        changed = state != self._state
        if changed:
            (self.events, self.malformed), self._state = read_events(path), state
            self.__dict__.pop("run_json", None)
        return self.steps_reader.refresh(declared_numbers(self.events)) or changed
