"""The overview of all runs: state, reward, findings, criteria and time."""

import os
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from truing.analysis.scorecard import scorecard
from truing.board.data.discovery import FolderIndex
from truing.board.data.experiments import parent_of
from truing.board.data.open_runs import OpenRuns
from truing.board.data.run_view import RunView, run_identity
from truing.board.views.findings import finding_json
from truing.board.views.tokens import shorten_and_count
from truing.doctor.report.run_summary import RunSummary, run_summary
from truing.doctor.traces.head import has_trace
from truing.errors import TruingError
from truing.record import has_writer
from truing.record.store import EVENTS, STEPS

SCAN_SHARE = 0.05
"""Maximum share of time for scanning for new runs: a folder may hold thousands."""

READ_SECONDS = 1.0
"""Seconds of reading runs per request. The page requests the rest again."""


class Overview:
    """A row per run, rebuilt when the run changes."""

    def __init__(self, folders: FolderIndex, open_runs: OpenRuns) -> None:
        self.folders, self.open_runs = folders, open_runs
        self._lines: dict[str, tuple[object, dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._next_scan = 0.0

    def stamps(self) -> dict[str, object]:
        """Return a stamp per run that changes with it; new runs appear after the next scan."""
        started = time.monotonic()
        if started >= self._next_scan:
            self.folders.rescan()
            self._next_scan = started + (time.monotonic() - started) / SCAN_SHARE
        return {name: _stamp(path) for name, path in self.folders.runs.items()}

    def overview_json(self) -> dict[str, Any]:
        """Return all runs, by last activity."""
        self.folders.rescan()
        with self._lock:
            waiting = self._read(time.monotonic() + READ_SECONDS)
            lines = [line for _, line in self._lines.values()]
        return {
            "root": str(self.folders.root),
            "runs": sorted(lines, key=lambda each: -each["last"]),
            "waiting": waiting,
            "labs": list(self.folders.labs),
            "notes": self.folders.notes,
        }

    def _read(self, deadline: float) -> int:
        """Update rows until a time and return how many runs are not read yet."""
        stamps = self.stamps()
        self._lines = {name: line for name, line in self._lines.items() if name in stamps}
        for name, stamp in stamps.items():
            known, line = self._lines.get(name, ("", {}))
            current = known == stamp and not line.get("unread")
            if not current and time.monotonic() < deadline:
                self._lines[name] = stamp, self._line(name)
        unread = sum(bool(line.get("unread")) for _, line in self._lines.values())
        return len(stamps.keys() - self._lines.keys()) + unread

    def _line(self, name: str) -> dict[str, Any]:
        """Return the row of a run, or of the error that makes it unreadable."""
        try:
            with self.open_runs.locked(name) as (run_view,):
                parent = parent_of(run_view, self.folders)
                return run_line(run_view) | {"scorecard": criteria_counts(run_view), "parent": parent}
        except TruingError as error:
            return {"run": name, "name": name, "state": "cannot be read", "why": str(error), "last": 0.0}


def _stamp(run_dir: Path) -> object:
    """Return the state of a run's files, and whether it has a writer."""
    try:
        sizes = [(status.st_size, status.st_mtime_ns) for status in map(os.stat, _watched_files(run_dir))]
        return run_identity(run_dir), *sizes, has_writer(run_dir)
    except (OSError, TruingError) as error:  # it was removed meanwhile, or is not readable
        return str(error)


def _watched_files(run_dir: Path) -> tuple[Path, ...]:
    if has_trace(run_dir):  # a file that is added changes its folder
        return (run_dir,)
    return run_dir / STEPS, run_dir / EVENTS


def run_line(run_view: RunView) -> dict[str, Any]:
    """Return the row of a run."""
    run = run_view.run
    return {
        "run": run_view.name,
        **summary_facts(run_summary(run)),
        "created": str(run.run_value("created") or ""),
        "last": max((event.time for event in run.events[-1:]), default=run_view.written_at),
        "steps": len(run.columns),
        "unread": run_view.unread,
        "device": run_view.device,
        "model": str(run.run_value("model", "name") or ""),
    }


def summary_facts(summary: RunSummary) -> dict[str, Any]:
    """Return a run summary as JSON."""
    facts_json = asdict(summary)
    findings, facts = (
        [finding_json(finding) for finding in group] for group in (summary.findings, summary.facts)
    )
    return facts_json | {
        "findings": findings,
        "facts": facts,
        "at": summary.current_stage,
        "why": shorten_and_count(summary.why),
    }


def criteria(run_view: RunView) -> list[dict[str, Any]]:
    """Return the success criteria; empty if the recipe or the device is unknown."""
    recipe, columns = run_view.recipe, run_view.run.columns
    if isinstance(recipe, str) or run_view.device not in ("cpu", "cuda"):
        return []
    steps, events = columns.select_stages(recipe.stages), run_view.run.events
    return [asdict(each) for each in scorecard(steps, recipe, run_view.device, events)]


def criteria_counts(run_view: RunView) -> dict[str, int]:
    """Return the number of criteria per verdict."""
    return dict(Counter(each["verdict"] for each in criteria(run_view)))
