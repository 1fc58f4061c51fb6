"""Answers requests to the board: view name and arguments → JSON."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from truing.board.arguments import Query, integer, required_text
from truing.board.data.discovery import FolderIndex
from truing.board.data.experiments import Experiments
from truing.board.data.open_runs import OpenRuns
from truing.board.data.run_view import RunView
from truing.board.views import answers, compare, forks, glossary, labs, prompts, rules, step
from truing.board.views import run as run_page
from truing.board.views.overview import Overview
from truing.errors import BadRequestError, RecordError
from truing.record.malformed import MALFORMED_ERRORS, as_record_error

MAX_TRIES = 3
"""Attempts at a view whose run changes while it is read."""


class Board:
    """All runs, traces and labs under one folder."""

    def __init__(self, root: Path) -> None:
        self.folders = FolderIndex(root)
        self.open_runs = OpenRuns(self.folders)
        self.experiments = Experiments(self.folders)
        self.overview = Overview(self.folders, self.open_runs)
        self._views: dict[str, Callable[[Query], Any]] = {
            "runs": lambda _: self.overview.overview_json(),
            "words": lambda _: glossary.glossary_json(),
            "rules": lambda _: rules.index(),
            "rule": lambda q: rules.page(required_text(q, "code")),
            "lab": lambda q: labs.status(self._find_folder(self.folders.labs, "lab", q)),
            "hypothesis": lambda q: labs.hypothesis(
                self._find_folder(self.folders.labs, "lab", q), required_text(q, "hypothesis")
            ),
            "forks": self._on_runs(lambda run, _: forks.forks(run, self.experiments), "run"),
            **{name: self._on_runs(view, "run") for name, view in RUN_VIEWS.items()},
            **{name: self._on_runs(view, "a", "b") for name, view in RUN_PAIR_VIEWS.items()},
        }

    def answer(self, view: str, query: Query) -> Any:
        """Return the answer of a view as JSON values; raise a TruingError without one."""
        if view not in self._views:
            raise BadRequestError(f"the board has no view {view[:50]}", expected=", ".join(self._views))
        with as_record_error(f"the view {view}"):
            return self._views[view](query)

    def _on_runs(self, view: Callable[..., Any], *names: str) -> Callable[[Query], Any]:
        """Return a view over current runs; it is retried if a run is truncated while it is read."""

        def answer(query: Query) -> Any:
            with self.open_runs.locked(*(required_text(query, name) for name in names)) as run_views:
                for _ in range(MAX_TRIES - 1):
                    try:
                        return view(*run_views, query)
                    except (RecordError, *MALFORMED_ERRORS):
                        if not sum(each.refresh() for each in run_views):
                            raise
                return view(*run_views, query)

        return answer

    def _find_folder(self, folders: Mapping[str, Path], kind: str, query: Query) -> Path:
        name = required_text(query, kind)
        if name not in folders:
            raise RecordError(f"there is no {kind} {name[:200]} under {self.folders.root}")
        return folders[name]


def _chart(run: RunView, query: Query) -> Any:
    end = integer(query, "to", 0) or None
    return run_page.chart(run, required_text(query, "chart"), integer(query, "from", 1, minimum=1) - 1, end)


def _step_of(query: Query) -> tuple[str, int]:
    return required_text(query, "stage"), integer(query, "step")  # of a trace from 0


RUN_VIEWS: dict[str, Callable[[RunView, Query], Any]] = {
    "run": lambda run, _: run_page.run_head(run),
    "chart": _chart,
    "curves": lambda run, _: run_page.curves(run),
    "number": lambda run, q: run_page.number(run, required_text(q, "number")),
    "step": lambda run, q: step.step(run, *_step_of(q)),
    "numbers": lambda run, q: step.step(run, *_step_of(q), samples=False),
    "sample": lambda run, q: step.sample(
        run, *_step_of(q), required_text(q, "sample"), integer(q, "token", 0)
    ),
    "group": lambda run, q: step.group(run, *_step_of(q), required_text(q, "group")),
    "tasks": prompts.tasks,
    "samples": prompts.samples,
    "answers": answers.answers,
}

RUN_PAIR_VIEWS: dict[str, Callable[[RunView, RunView, Query], Any]] = {
    "compare": lambda first, second, _: compare.compare_runs(first, second),
    "compare_tokens": lambda first, second, _: compare.compare_tokens(first, second),
}
