"""All runs on one screen: alive or not, what they earn, what was found, how they stand, what they cost."""

import os
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from truing.analysis.scorecard import ROUNDING, scorecard
from truing.board.data.discovery import Places
from truing.board.data.open_runs import Held
from truing.board.data.run_view import Opened, identity
from truing.board.views.findings import finding
from truing.board.views.tokens import short
from truing.doctor.report.run_summary import Glance, glance
from truing.errors import TruingError
from truing.record import being_written
from truing.record.store import EVENTS, STEPS

SHARE = 0.05
"""Of its time, the most that the board looks for new runs by itself: a folder may hold thousands."""

PATIENCE = 1.0
"""Seconds that runs are read for. The rest is told as not read yet, and asked for again."""


class Overview:
    """A line for each run, which is made again where the run has moved."""

    def __init__(self, places: Places, held: Held) -> None:
        self.places, self.held = places, held
        self._lines: dict[str, tuple[object, dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._looks_from = 0.0

    def stamps(self) -> dict[str, object]:
        """For each run, what changes when it does; runs that are new are found in a while."""
        begun = time.monotonic()
        if begun >= self._looks_from:
            self.places.look()
            self._looks_from = begun + (time.monotonic() - begun) / SHARE
        return {name: _stamp(path) for name, path in self.places.runs.items()}

    def told(self) -> dict[str, Any]:
        """All runs, those that said something last first."""
        self.places.look()
        with self._lock:
            waiting = self._read(time.monotonic() + PATIENCE)
            lines = [line for _, line in self._lines.values()]
        return {
            "root": str(self.places.root),
            "runs": sorted(lines, key=lambda each: -each["last"]),
            "waiting": waiting,
            "labs": list(self.places.labs),
            "audits": list(self.places.audits),
            "notes": self.places.notes,
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
            with self.held.reading(name) as (opened,):
                return line(opened) | {"scorecard": verdicts(opened)}
        except TruingError as error:
            return {"run": name, "name": name, "state": "cannot be read", "why": str(error), "last": 0.0}


def _stamp(run_dir: Path) -> object:
    """What changes when a run does: its files, and whether somebody writes it."""
    try:
        sizes = [(status.st_size, status.st_mtime_ns) for status in map(os.stat, _watched(run_dir))]
        return identity(run_dir), *sizes, being_written(run_dir)
    except (OSError, TruingError) as error:  # it was removed since it was found, or may not be read
        return str(error)


def _watched(run_dir: Path) -> tuple[Path, Path]:
    return run_dir / STEPS, run_dir / EVENTS


def line(opened: Opened) -> dict[str, Any]:
    """A run in one line."""
    run = opened.run
    return {
        "run": opened.name,
        **glance_facts(glance(run)),
        "created": str(run.fact("created") or ""),
        "last": max((event.time for event in run.events[-1:]), default=opened.written),
        "updates": len(run.columns),
        "device": opened.device,
        "model": str(run.fact("model", "name") or ""),
    }


def glance_facts(seen: Glance) -> dict[str, Any]:
    """A glance as JSON has it."""
    told = asdict(seen)
    found, facts = ([finding(each) for each in every] for every in (seen.findings, seen.facts))
    return told | {"findings": found, "facts": facts, "at": seen.at, "why": short(seen.why)}


def cards(opened: Opened) -> list[dict[str, Any]]:
    """The success criteria of report 000, as they stand; none where the recipe or the device is not known."""
    recipe, columns = opened.recipe, opened.run.columns
    if isinstance(recipe, str) or opened.device not in ROUNDING:
        return []
    kinds = [event.kind for event in opened.run.events]
    return [asdict(each) for each in scorecard(columns.of(recipe.stages), recipe, opened.device, kinds)]


def verdicts(opened: Opened) -> dict[str, int]:
    """How many criteria pass, fail and are not judged."""
    return dict(Counter(each["verdict"] for each in cards(opened)))
