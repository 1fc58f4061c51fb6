"""What the board answers to which question: a name, its arguments, and the view that is asked."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from truing.board import audits, compare_page, labs, overview, prompts, rules_page, run_page
from truing.board.opened import Opened
from truing.board.places import Places
from truing.errors import RecordError, TruingError
from truing.record import being_written
from truing.record.store import EVENTS, STEPS

Query = Mapping[str, str]

ODD = (KeyError, TypeError, ValueError, IndexError, AttributeError, OSError, pa.ArrowException)
"""What a record that somebody made by hand, or a newer or older version, may lead to."""

HELD = 24
"""Runs that are held open at once; the one that was not asked for longest goes."""

SHARE = 0.05
"""Of its time, the most that the board looks for new runs by itself: a folder may hold thousands."""

PATIENCE = 1.0
"""Seconds that the overview reads runs for. The rest is told as not read yet, and asked for again."""


class Board:
    """Everything under one folder, and what is held of it."""

    def __init__(self, root: Path) -> None:
        self.places = Places(root)
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._lines: dict[str, tuple[object, dict[str, Any]]] = {}
        self._lock = threading.RLock()
        self._looks_from = 0.0
        self._views: dict[str, Callable[[Query], Any]] = {
            "runs": self._runs,
            "run": self._of_run(lambda run, _: run_page.head(run)),
            "chart": self._of_run(self._chart),
            "number": self._of_run(lambda run, q: run_page.number(run, said(q, "number"))),
            "update": self._of_run(lambda run, q: run_page.update(run, said(q, "stage"), whole(q, "update"))),
            "sample": self._of_run(
                lambda run, q: run_page.sample(
                    run, said(q, "stage"), whole(q, "update"), said(q, "sample"), whole(q, "start", 0)
                )
            ),
            "group": self._of_run(
                lambda run, q: run_page.group(run, said(q, "stage"), whole(q, "update"), said(q, "group"))
            ),
            "tasks": self._of_run(
                lambda run, q: prompts.tasks(
                    run,
                    q.get("order", "attempts"),
                    bool(q.get("backwards")),
                    whole(q, "start", 0),
                    q.get("text", ""),
                )
            ),
            "samples": self._of_run(
                lambda run, q: prompts.samples(
                    run, q, q.get("order", "update"), bool(q.get("backwards")), whole(q, "start", 0)
                )
            ),
            "compare": self._of_two(compare_page.told),
            "parting": self._of_two(compare_page.parting),
            "lab": lambda q: labs.status(self._place(self.places.labs, "lab", q)),
            "hypothesis": lambda q: labs.hypothesis(
                self._place(self.places.labs, "lab", q), said(q, "hypothesis")
            ),
            "audit": lambda q: audits.judged(self._place(self.places.audits, "audit", q)),
            "rules": lambda _: rules_page.index(),
            "rule": lambda q: rules_page.page(said(q, "code")),
        }

    def answer(self, view: str, query: Query) -> Any:
        """The view's answer as JSON has it."""
        if view not in self._views:
            raise RecordError(f"the board has no view {view}", expected=", ".join(self._views))
        return self._views[view](query)

    @contextmanager
    def reading(self, name: str) -> Iterator[Opened]:
        """A run as it is now, for one reader at a time; a record that is not as it should be is told of."""
        opened = self._open(name)
        try:
            with opened.lock:
                opened.refresh()
                yield opened
        except ODD as error:
            raise RecordError(
                f"the record of {name} is not as it should be", got=repr(error)[:500]
            ) from error

    def _open(self, name: str) -> Opened:
        """A run by its name."""
        with self._lock:
            if name not in self._opened:
                if name not in self.places.runs:
                    self.places.look()
                if name not in self.places.runs:
                    raise RecordError(f"there is no run {name} under {self.places.root}")
                self._opened[name] = Opened(name, self.places.runs[name], self.places.root)
                if len(self._opened) > HELD:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(name)
            return self._opened[name]

    def stamps(self) -> dict[str, object]:
        """For each run, what changes when it does; runs that are new are found in a while."""
        begun = time.monotonic()
        if begun >= self._looks_from:
            self.places.look()
            self._looks_from = begun + (time.monotonic() - begun) / SHARE
        return {name: _stamp(path) for name, path in self.places.runs.items()}

    def _runs(self, _: Query) -> dict[str, Any]:
        """All runs, those that said something last first."""
        self.places.look()
        until, lines, waiting = time.monotonic() + PATIENCE, list[dict[str, Any]](), 0
        for name, path in self.places.runs.items():
            stamp = _stamp(path)
            held = self._lines.get(name)
            if (held is None or held[0] != stamp) and time.monotonic() < until:
                held = self._lines[name] = stamp, self._line(name)
            if held is None:
                waiting += 1
            else:
                lines.append(held[1])
        lines.sort(key=lambda each: -each.get("last", 0.0))
        return {
            "root": str(self.places.root),
            "runs": lines,
            "waiting": waiting,
            "labs": list(self.places.labs),
            "audits": list(self.places.audits),
            "notes": self.places.notes,
        }

    def _line(self, name: str) -> dict[str, Any]:
        """A run in one line; what is wrong with a record that cannot be read is told in its place."""
        try:
            with self.reading(name) as opened:
                return overview.line(opened) | {"scorecard": overview.verdicts(opened)}
        except TruingError as error:
            return {"run": name, "name": name, "state": "cannot be read", "why": str(error)}

    def _of_run(self, view: Callable[[Opened, Query], Any]) -> Callable[[Query], Any]:
        """A view of one run, as it is now."""

        def of_run(query: Query) -> Any:
            with self.reading(said(query, "run")) as opened:
                return view(opened, query)

        return of_run

    def _of_two(self, view: Callable[[Opened, Opened], Any]) -> Callable[[Query], Any]:
        """A view of two runs."""

        def of_two(query: Query) -> Any:
            pair = list[Opened]()
            for name in ("a", "b"):
                with self.reading(said(query, name)) as opened:
                    pair.append(opened)
            return view(*pair)

        return of_two

    def _place(self, places: Mapping[str, Path], kind: str, query: Query) -> Path:
        name = said(query, kind)
        if name not in places:
            raise RecordError(f"there is no {kind} {name} under {self.places.root}")
        return places[name]

    def _chart(self, opened: Opened, query: Query) -> Any:
        end = whole(query, "to", 0) or None
        return run_page.chart(opened, said(query, "chart"), max(0, whole(query, "from", 1) - 1), end)


def said(query: Query, name: str) -> str:
    """An argument that must be there."""
    if name not in query:
        raise RecordError(f"the question lacks {name}")
    return query[name]


def whole(query: Query, name: str, default: int | None = None) -> int:
    """An argument that is a whole number."""
    text = query.get(name, "") or ("" if default is None else str(default))
    try:
        return int(text)
    except ValueError as error:
        raise RecordError(f"{name} is no whole number", got=text[:50]) from error


def _stamp(run_dir: Path) -> object:
    """What changes when a run does: its sizes, and whether somebody writes it."""
    sizes = []
    for name in (STEPS, EVENTS):
        try:
            status = (run_dir / name).stat()
            sizes.append((status.st_size, status.st_mtime_ns))
        except OSError:  # it was removed since it was found
            sizes.append((-1, -1))
    return *sizes, sizes[0][0] >= 0 and being_written(run_dir)
