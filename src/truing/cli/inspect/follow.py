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


def follow(watched: RunWatcher, console: Console, *, once: bool) -> None:
    """Say what happens until the run ends; the panel below, or where there is no terminal, at the end."""
    panel = LiveRegion(console) if has_terminal(console) else None
    teller, pace = NewEventPrinter(watched, console, updates=panel is None), Throttle(SHARE, PAUSE)
    try:
        while True:
            with pace.spent():
                facts = watched.look()
                teller.tell(facts)
                if panel is not None:
                    panel.show(facts)
            if once or facts.seen.state != "running":
                break
            time.sleep(pace.left)
    finally:
        if panel is not None:
            panel.leave()
    if panel is None:
        console.print(render_panel(facts, console.width))


class NewEventPrinter:
    """Says what was added to a record since it was asked last."""

    def __init__(self, watched: RunWatcher, console: Console, *, updates: bool) -> None:
        """``updates``: whether the newest of a run that goes on is said too, now and then."""
        self.watched, self.lines, self.updates = watched, EventPrinter(console), updates
        self.pace = Throttle(1.0, SECONDS_BETWEEN_LINES)
        self.told: int | None = None  # events so far
        self.at: tuple[str, int, int] | None = None

    def tell(self, facts: Screen) -> None:
        """Say what is new; of what was there before the first time, the last."""
        events = self.watched.run.events
        new = events if self.told is None or self.told > len(events) else events[self.told :]
        new = [event for event in new if self._is_printed(event)]
        if self.told is None:  # first tokens in words are for whoever stood by
            new = [event for event in new if event.kind != "boundary"][-LAST_EVENTS:]
        self._print_events(new)
        self.told = len(events)
        due = self.updates and facts.seen.state == "running" and not self.pace.left
        if due and facts.seen.at not in (None, self.at):
            with self.pace.spent():
                self._print_update(facts)

    def _is_printed(self, event: Event) -> bool:
        """Whether it was said when it happened: later updates are in words for the record alone."""
        later = event.kind == "boundary" and event.payload.get("step", 0) >= SHOWN_UPDATES
        return hasattr(self.lines, f"on_{event.kind}") and not later

    def _print_events(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self.lines(event.kind, printed_facts(event, self.watched.run.run_dir))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise RecordError(
                    f"an event of {self.watched.run.run_dir} lacks what it should hold: {event.kind}",
                    got=repr(error),
                    expected="facts as this version of Truing writes them",
                    remedy="restore events.jsonl from a copy, or read it with the version that wrote it",
                ) from error

    def _print_update(self, facts: Screen) -> None:
        self.at = facts.seen.at
        if self.at is not None:
            self.lines.update(*self.at, self.watched.run.columns.at(-1), facts.seen.loss, facts.seen.left)


def printed_facts(event: Event, run: Path) -> Mapping[str, Any]:
    """The facts of an event as whoever watched was told them: the record has null for NaN, and no paths."""
    facts = event.payload
    if event.kind == "eval":
        return {**facts, "parts": floats_from_json(facts["parts"])}
    return {**facts, "run": str(run)} if event.kind == "stopped" else facts


def summary_json(watched: RunWatcher) -> str:
    """The first screen as a line of JSON: updates count from 1, and what nobody knows is null."""
    facts = watched.look()
    told = {"run": str(watched.run.run_dir), **summary_facts(facts.seen)}
    return dump_json({**told, "updates": len(watched.run.columns), "scorecard": facts.criteria}).decode()
