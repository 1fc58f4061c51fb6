"""A record that is read as it grows: what happened is said as it was said to whoever trained."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from truing.board.views.overview import summary_facts
from truing.doctor.report.first_updates import SHOWN_UPDATES
from truing.errors import RecordError
from truing.record import Event
from truing.terminal.live_region import LiveRegion, has_terminal
from truing.terminal.progress import SECONDS_BETWEEN_LINES, EventPrinter
from truing.terminal.reader import RunWatcher, Screen
from truing.terminal.render import render_panel
from truing.terminal.throttle import Throttle
from truing.utils.jsonl import dump_json, floats_from_json

LAST_EVENTS = 10
"""Events before it was followed that are said again."""

SHARE, PAUSE = 0.05, 0.5
"""Of one core, what following may take; seconds between two looks."""


def follow(watcher: RunWatcher, console: Console, *, once: bool) -> None:
    """Say what happens until the run ends; the panel below, or where there is no terminal, at the end."""
    panel = LiveRegion(console) if has_terminal(console) else None
    teller, pace = NewEventPrinter(watcher, console, updates=panel is None), Throttle(SHARE, PAUSE)
    try:
        while True:
            with pace.measure():
                facts = watcher.read()
                teller.print_new(facts)
                if panel is not None:
                    panel.show(facts)
            if once or facts.summary.state != "running":
                break
            time.sleep(pace.seconds_left)
    finally:
        if panel is not None:
            panel.stop()
    if panel is None:
        console.print(render_panel(facts, console.width))


class NewEventPrinter:
    """Says what was added to a record since it was asked last."""

    def __init__(self, watched: RunWatcher, console: Console, *, updates: bool) -> None:
        """``updates``: whether the newest of a run that goes on is said too, now and then."""
        self.watcher, self.printer, self.print_updates = watched, EventPrinter(console), updates
        self.throttle = Throttle(1.0, SECONDS_BETWEEN_LINES)
        self.printed_count: int | None = None  # events so far
        self.last_update: tuple[str, int, int] | None = None

    def print_new(self, facts: Screen) -> None:
        """Say what is new; of what was there before the first time, the last."""
        events = self.watcher.run.events
        new = (
            events
            if self.printed_count is None or self.printed_count > len(events)
            else events[self.printed_count :]
        )
        new = [event for event in new if self._is_printed(event)]
        if self.printed_count is None:  # first tokens in words are for whoever stood by
            new = [event for event in new if event.kind != "boundary"][-LAST_EVENTS:]
        self._print_events(new)
        self.printed_count = len(events)
        due = self.print_updates and facts.summary.state == "running" and not self.throttle.seconds_left
        if due and facts.summary.current_stage not in (None, self.last_update):
            with self.throttle.measure():
                self._print_update(facts)

    def _is_printed(self, event: Event) -> bool:
        """Whether it was said when it happened: later updates are in words for the record alone."""
        later = event.kind == "boundary" and event.payload.get("step", 0) >= SHOWN_UPDATES
        return hasattr(self.printer, f"on_{event.kind}") and not later

    def _print_events(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self.printer(event.kind, printed_facts(event, self.watcher.run.run_dir))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise RecordError(
                    f"an event of {self.watcher.run.run_dir} lacks what it should hold: {event.kind}",
                    got=repr(error),
                    expected="facts as this version of Truing writes them",
                    remedy="restore events.jsonl from a copy, or read it with the version that wrote it",
                ) from error

    def _print_update(self, facts: Screen) -> None:
        self.last_update = facts.summary.current_stage
        if self.last_update is not None:
            self.printer.print_update(
                *self.last_update,
                self.watcher.run.columns.numbers_at(-1),
                facts.summary.loss,
                facts.summary.left,
            )


def printed_facts(event: Event, run: Path) -> Mapping[str, Any]:
    """The facts of an event as whoever watched was told them: the record has null for NaN, and no paths."""
    facts = event.payload
    if event.kind == "eval":
        return {**facts, "parts": floats_from_json(facts["parts"])}
    return {**facts, "run": str(run)} if event.kind == "stopped" else facts


def summary_json(watcher: RunWatcher) -> str:
    """The first screen as a line of JSON: updates count from 1, and what nobody knows is null."""
    facts = watcher.read()
    told = {"run": str(watcher.run.run_dir), **summary_facts(facts.summary)}
    return dump_json({**told, "updates": len(watcher.run.columns), "scorecard": facts.criteria}).decode()
