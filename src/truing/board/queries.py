"""What the board answers to which question: a name, its arguments, and the view that is asked."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from truing.board.arguments import Query, said, whole
from truing.board.data.discovery import Places
from truing.board.data.malformed import ODD, telling
from truing.board.data.open_runs import Held
from truing.board.data.run_view import Opened
from truing.board.views import audits, compare, glossary, labs, prompts, rules, update
from truing.board.views import run as run_page
from truing.board.views.overview import Overview
from truing.errors import QuestionError, RecordError

TRIES = 3
"""Times that a view is asked for where the run changed while it was read, and it came to nothing."""


class Board:
    """Everything under one folder, and what is held of it."""

    def __init__(self, root: Path) -> None:
        self.places = Places(root)
        self.held = Held(self.places)
        self.overview = Overview(self.places, self.held)
        self._views: dict[str, Callable[[Query], Any]] = {
            "runs": lambda _: self.overview.told(),
            "words": lambda _: glossary.told(),
            "rules": lambda _: rules.index(),
            "rule": lambda q: rules.page(said(q, "code")),
            "lab": lambda q: labs.status(self._place(self.places.labs, "lab", q)),
            "hypothesis": lambda q: labs.hypothesis(
                self._place(self.places.labs, "lab", q), said(q, "hypothesis")
            ),
            "audit": lambda q: audits.judged(self._place(self.places.audits, "audit", q)),
            **{name: self._of_runs(view, "run") for name, view in OF_A_RUN.items()},
            **{name: self._of_runs(view, "a", "b") for name, view in OF_TWO.items()},
        }

    def answer(self, view: str, query: Query) -> Any:
        """The view's answer as JSON has it; a TruingError where there is none."""
        if view not in self._views:
            raise QuestionError(f"the board has no view {view[:50]}", expected=", ".join(self._views))
        with telling(f"what {view} shows"):
            return self._views[view](query)

    def _of_runs(self, view: Callable[..., Any], *names: str) -> Callable[[Query], Any]:
        """A view of runs as they are now; of one that was cut back while it was read, it is made again."""

        def of_runs(query: Query) -> Any:
            with self.held.reading(*(said(query, name) for name in names)) as opened:
                for _ in range(TRIES - 1):
                    try:
                        return view(*opened, query)
                    except (RecordError, *ODD):
                        if not sum(each.refresh() for each in opened):
                            raise
                return view(*opened, query)

        return of_runs

    def _place(self, places: Mapping[str, Path], kind: str, query: Query) -> Path:
        name = said(query, kind)
        if name not in places:
            raise RecordError(f"there is no {kind} {name[:200]} under {self.places.root}")
        return places[name]


def _chart(run: Opened, query: Query) -> Any:
    end = whole(query, "to", 0) or None
    return run_page.chart(run, said(query, "chart"), whole(query, "from", 1, least=1) - 1, end)


def _at(query: Query) -> tuple[str, int]:
    return said(query, "stage"), whole(query, "update", least=1)


OF_A_RUN: dict[str, Callable[[Opened, Query], Any]] = {
    "run": lambda run, _: run_page.head(run),
    "chart": _chart,
    "number": lambda run, q: run_page.number(run, said(q, "number")),
    "update": lambda run, q: update.update(run, *_at(q)),
    "numbers": lambda run, q: update.update(run, *_at(q), samples=False),
    "sample": lambda run, q: update.sample(run, *_at(q), said(q, "sample"), whole(q, "token", 0)),
    "group": lambda run, q: update.group(run, *_at(q), said(q, "group")),
    "tasks": prompts.tasks,
    "samples": prompts.samples,
}

OF_TWO: dict[str, Callable[[Opened, Opened, Query], Any]] = {
    "compare": lambda first, second, _: compare.told(first, second),
    "parting": lambda first, second, _: compare.parting(first, second),
}
