"""Reads a trace as the pages of the board read a run: columns of numbers, steps, and findings as events."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from truing.analysis.incremental_reader import IncrementalReader
from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import Setup, Step
from truing.doctor.formulas.found import Found
from truing.doctor.live_doctor import finding_event
from truing.doctor.report.run_summary import TRACE_EVENT
from truing.doctor.traces.head import Head, read_head
from truing.doctor.traces.read import Reading, read_step, step_paths
from truing.doctor.traces.setup_words import words_of
from truing.doctor.traces.step_file import read_step_file
from truing.doctor.traces.table import table_of
from truing.doctor.verdict import Verdict
from truing.record.events import Event
from truing.record.step_columns import StepColumns, columns_of
from truing.record.step_line import Segment, StepLine
from truing.types.step_table import StepTable
from truing.utils.one_thread import one_thread

READ_SECONDS = 1.0
"""Seconds of reading and judging per refresh. The next ones read the rest."""


@dataclass
class _Judged:
    """The steps that were read, and what the rules find in them."""

    reading: Reading
    diagnosis: Diagnosis = field(default_factory=lambda: Diagnosis(select_rules()))
    found: Found = field(default_factory=Found)
    lines: list[StepLine] = field(default_factory=list[StepLine])
    paths: list[Sequence[Path]] = field(default_factory=list[Sequence[Path]])  # of each line
    # size and time of each file
    stamps: dict[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])
    times: dict[int, float] = field(default_factory=dict[int, float])  # when each step was written

    def add(self, paths: Sequence[Path], final: bool) -> None:
        """Read and judge the next step; ``final``: it is the last so far, with which trends are judged."""
        stamps = _stamps(paths)
        before = self.lines[-1].step + 1 if self.lines else -1
        with one_thread():  # tables of some hundred tokens
            step = self.reading.step(read_step(paths, before))
            self.diagnosis.add(step, final)
            self.found.add(step)
        self.stamps |= stamps
        self.times[step.step] = max(written for _, written in stamps.values()) / 1e9
        self.paths.append(paths)
        self.lines.append(_line(step, f"{paths[0].name} {stamps}"))

    def events(self, created: float) -> list[Event]:
        """Return the findings as events, in the order of steps, and that it is a trace.

        ``created`` is the time of a trace without a step, seconds since 1970.
        """
        found = chain.from_iterable(each.findings for each in self.diagnosis.results())
        events = [
            Event(
                self.times[each.step],
                "fact" if each.claim.verdict is Verdict.FACT else "finding",
                finding_event(each),
            )
            for each in sorted(found, key=lambda each: each.step)
        ]
        written = max(self.times.values(), default=created)
        return [*events, Event(written, TRACE_EVENT, {"text": f"written by {self.reading.setup.trainer}"})]


class TraceReader(IncrementalReader):
    """A trace with its findings and columns as of the last ``refresh``, which judges new steps."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.head = Head(Setup(), "")
        self.judged = _Judged(Reading(self.head.setup))
        self.unread = 0  # steps
        self._keep_events()

    @property
    def columns(self) -> StepColumns:
        """The metrics of every step that was read."""
        return self._columns

    @cached_property
    def _columns(self) -> StepColumns:
        return columns_of(self.judged.lines)

    @cached_property
    def run_json(self) -> dict[str, Any]:
        """What a page asks of a run.json: name, trainer, what it declares, and the steps of each stage."""
        ends = {line.stage: line.step + 1 for line in self.judged.lines}
        planned = {name: {"steps": steps} for name, steps in ends.items()}
        recipe = {"stages": list(ends), "setup": words_of(self.head.setup), **planned}
        return {"name": self.run_dir.name, "model": {"name": self.head.producer}, "recipe": recipe}

    @property
    def missing_steps(self) -> list[str]:
        """Nothing: a trace may have a part of the steps."""
        return []

    def refresh(self) -> bool:
        """Read and judge new steps for some time; all of them anew if files or settings changed."""
        until, steps = time.monotonic() + READ_SECONDS, step_paths(self.run_dir)
        self.head = read_head(self.run_dir)
        stamps = _stamps(list(chain.from_iterable(steps[: len(self.judged.lines)])))
        begins = self.head.setup != self.judged.reading.setup or stamps != self.judged.stamps
        if begins:
            self.judged = _Judged(Reading(self.head.setup))
        before = len(self.judged.lines)
        for paths in steps[before:]:
            self.judged.add(paths, paths is steps[-1])
            if time.monotonic() > until:
                break
        self.unread = len(steps) - len(self.judged.lines)
        if begins or len(self.judged.lines) > before:
            self._keep_events()
            self.__dict__.pop("_columns", None)
            self.__dict__.pop("run_json", None)
            return True
        return False

    def _keep_events(self) -> None:
        self.events = self.judged.events(self.run_dir.stat().st_mtime)

    def step_row(self, row: int) -> StepLine:
        """Return the numbers of one step by its row."""
        return self.judged.lines[row]

    def table(self, line: StepLine) -> StepTable:
        """Return a step with its samples, read again."""
        row = self.columns.find(line.stage, line.step)
        assert row is not None
        return table_of([read_step_file(path) for path in self.judged.paths[row]], self.head.setup)


def _line(step: Step, version: str) -> StepLine:
    """Return the numbers of a step; ``version`` differs if its files change."""
    segment = Segment(version, len(step.samples), version)
    return StepLine(**vars(step.only_numbers), segment=segment)


def _stamps(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Return size and time in nanoseconds of files."""
    found = ((path, path.stat()) for path in paths)
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found}
