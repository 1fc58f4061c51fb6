"""A run that is looked at again and again: what was read is kept, and only what was added is read."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from truing.analysis.valid_events import read_events
from truing.errors import RecordError
from truing.record.reader import Event, RunReader, has_writer
from truing.record.steps_reader import StepsReader, declared_numbers
from truing.record.store import EVENTS
from truing.record.update_columns import UpdateColumns


class IncrementalReader:
    """A run directory with its events and columns as of the last ``refresh``."""

    def __init__(self, run_dir: Path) -> None:
        self.reader = RunReader(run_dir)
        self.run_dir = self.reader.run_dir
        self.steps_reader = StepsReader(self.run_dir)
        self.events: list[Event] = []
        self.has_writer = False  # whether a process had it open, before its events were read: none is missed
        self.malformed: list[str] = []  # lines of events.jsonl that say nothing that can be shown, and why
        self._seen = (-1, -1)

    @cached_property
    def run_json(self) -> dict[str, Any]:
        """What run.json says; it is written once."""
        return self.reader.run_json()

    def run_value(self, *path: str) -> Any:
        """What run.json says under these names, one within the other; None where it says nothing there."""
        found: Any = self.run_json
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    @property
    def columns(self) -> UpdateColumns:
        """The numbers of every update."""
        return self.steps_reader.columns

    def refresh(self) -> bool:
        """Read what was added; whether there was anything."""
        self.has_writer = has_writer(self.run_dir)
        path = self.run_dir / EVENTS
        try:
            status = os.stat(path)
        except OSError as error:
            raise RecordError(
                f"cannot read {path}", got=error.strerror, expected="a file of a run"
            ) from error
        seen = status.st_size, status.st_mtime_ns
        told = seen != self._seen
        if told:
            (self.events, self.malformed), self._seen = read_events(path), seen
        return self.steps_reader.refresh(declared_numbers(self.events)) or told
