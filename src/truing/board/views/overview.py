"""All runs on one screen: alive or not, what they earn, what was found, how they stand, what they cost."""

import os
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from truing.analysis.scorecard import MAX_MISMATCH_NATS, scorecard
from truing.board.data.discovery import FolderIndex
from truing.board.data.open_runs import OpenRuns
from truing.board.data.run_view import RunView, run_identity
from truing.board.views.findings import finding_json
from truing.board.views.tokens import shorten_and_count
from truing.doctor.report.run_summary import RunSummary, run_summary
from truing.errors import TruingError
from truing.record import has_writer
from truing.record.store import EVENTS, STEPS

SCAN_SHARE = 0.05
"""Of its time, the most that the board looks for new runs by itself: a folder may hold thousands."""

READ_SECONDS = 1.0
"""Seconds that runs are read for. The rest is told as not read yet, and asked for again."""


class Overview:
    """A line for each run, which is made again where the run has moved."""

    def __init__(self, places: FolderIndex, held: OpenRuns) -> None:
        self.folders, self.open_runs = places, held
        self._lines: dict[str, tuple[object, dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._next_scan = 0.0

    def stamps(self) -> dict[str, object]:
        """For each run, what changes when it does; runs that are new are found in a while."""
        begun = time.monotonic()
        if begun >= self._next_scan:
            self.folders.rescan()
            self._next_scan = begun + (time.monotonic() - begun) / SCAN_SHARE
        return {name: _stamp(path) for name, path in self.folders.runs.items()}

    def overview_json(self) -> dict[str, Any]:
        """All runs, those that said something last first."""
        self.folders.rescan()
        with self._lock:
            waiting = self._read(time.monotonic() + READ_SECONDS)
            lines = [line for _, line in self._lines.values()]
        return {
            "root": str(self.folders.root),
            "runs": sorted(lines, key=lambda each: -each["last"]),
            "waiting": waiting,
            "labs": list(self.folders.labs),
            "audits": list(self.folders.audits),
            "notes": self.folders.notes,
        }

    def _read(self, until: float) -> int:
        """Bring lines to what runs are now, as far as there is time; how many are not read yet."""
        stamps = self.stamps()
        self._lines = {name: held for name, held in self._lines.items() if name in stamps}
        for name, stamp in stamps.items():
            known = name in self._lines and self._lines[name][0] == stamp
            if not known and time.monotonic() < until:
                self._lines[name] = stamp, self._line(name)
        return len(stamps.keys() - self._lines.keys())

    def _line(self, name: str) -> dict[str, Any]:
        """A run in one line; what is wrong with a record that cannot be read is told in its place."""
        try:
            with self.open_runs.locked(name) as (opened,):
                return run_line(opened) | {"scorecard": criteria_counts(opened)}
        except TruingError as error:
            return {"run": name, "name": name, "state": "cannot be read", "why": str(error), "last": 0.0}


def _stamp(run_dir: Path) -> object:
    """What changes when a run does: its files, and whether somebody writes it."""
    try:
        sizes = [(status.st_size, status.st_mtime_ns) for status in map(os.stat, _watched_files(run_dir))]
        return run_identity(run_dir), *sizes, has_writer(run_dir)
    except (OSError, TruingError) as error:  # it was removed since it was found, or may not be read
        return str(error)


def _watched_files(run_dir: Path) -> tuple[Path, Path]:
    return run_dir / STEPS, run_dir / EVENTS


def run_line(opened: RunView) -> dict[str, Any]:
    """A run in one line."""
    run = opened.run
    return {
        "run": opened.name,
        **summary_facts(run_summary(run)),
        "created": str(run.run_value("created") or ""),
        "last": max((event.time for event in run.events[-1:]), default=opened.written_at),
        "updates": len(run.columns),
        "device": opened.device,
        "model": str(run.run_value("model", "name") or ""),
    }


def summary_facts(summary: RunSummary) -> dict[str, Any]:
    """A glance as JSON has it."""
    told = asdict(summary)
    found, facts = ([finding_json(each) for each in every] for every in (summary.findings, summary.facts))
    return told | {
        "findings": found,
        "facts": facts,
        "at": summary.current_stage,
        "why": shorten_and_count(summary.why),
    }


def criteria(opened: RunView) -> list[dict[str, Any]]:
    """The success criteria of report 000, as they stand; none where the recipe or the device is not known."""
    recipe, columns = opened.recipe, opened.run.columns
    if isinstance(recipe, str) or opened.device not in MAX_MISMATCH_NATS:
        return []
    kinds = [event.kind for event in opened.run.events]
    return [
        asdict(each) for each in scorecard(columns.select_stages(recipe.stages), recipe, opened.device, kinds)
    ]


def criteria_counts(opened: RunView) -> dict[str, int]:
    """How many criteria pass, fail and are not judged."""
    return dict(Counter(each["verdict"] for each in criteria(opened)))
