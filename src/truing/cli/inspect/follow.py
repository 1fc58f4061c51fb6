"""Follow a growing run directory: print its events as `truing train` prints them."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from truing.board.views.overview import summary_facts
from truing.errors import RecordError
from truing.record import Event
from truing.terminal.live_region import LiveRegion, has_terminal
from truing.terminal.progress import SECONDS_BETWEEN_LINES, EventPrinter
from truing.terminal.reader import RunWatcher, Screen
from truing.terminal.render import render_panel
from truing.terminal.throttle import Throttle
from truing.utils.jsonl import dump_json, floats_from_json

LAST_EVENTS = 10
"""Earlier events that are printed at the start."""

CPU_SHARE, MIN_PAUSE = 0.05, 0.5
"""Share of one core that following may take; least seconds between two reads."""


def follow(watcher: RunWatcher, console: Console, *, once: bool) -> None:
    """Print events until the run ends, above a live panel; without a terminal, the panel once at the end."""
    live_region = LiveRegion(console) if has_terminal(console) else None
    printer = NewEventPrinter(watcher, console, steps=live_region is None)
    throttle = Throttle(CPU_SHARE, MIN_PAUSE)
    try:
        while True:
            with throttle.measure():
                facts = watcher.read()
                printer.print_new(facts)
                if live_region is not None:
                    live_region.show(facts)
            if once or facts.summary.state != "running":
                break
            time.sleep(throttle.seconds_left)
    finally:
        if live_region is not None:
            live_region.stop()
    if live_region is None:
        console.print(render_panel(facts, console.width))


class NewEventPrinter:
    """Prints the events that were added since the last call."""

    def __init__(self, watcher: RunWatcher, console: Console, *, steps: bool) -> None:
        """``steps``: print the newest step of a running run too, at intervals."""
        self.watcher, self.printer, self.print_steps = watcher, EventPrinter(console), steps
        self.throttle = Throttle(1.0, SECONDS_BETWEEN_LINES)
        self.printed_count: int | None = None  # events so far
        self.last_step: tuple[str, int, int] | None = None

    def print_new(self, facts: Screen) -> None:
        """Print new events; on the first call, the last few."""
        events = self.watcher.run.events
        new = (
            events
            if self.printed_count is None or self.printed_count > len(events)
            else events[self.printed_count :]
        )
        new = [event for event in new if hasattr(self.printer, f"on_{event.kind}")]
        self._print_events(new[-LAST_EVENTS:] if self.printed_count is None else new)
        self.printed_count = len(events)
        due = self.print_steps and facts.summary.state == "running" and not self.throttle.seconds_left
        if due and facts.summary.current_stage not in (None, self.last_step):
            with self.throttle.measure():
                self._print_step(facts)

    def _print_events(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self.printer(event.kind, printed_facts(event, self.watcher.run.run_dir))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise RecordError(
                    f"an event of {self.watcher.run.run_dir} is incomplete: {event.kind}",
                    got=repr(error),
                    expected="the facts that this version of Truing writes",
                    remedy="restore events.jsonl from a copy, or read it with the version that wrote it",
                ) from error

    def _print_step(self, facts: Screen) -> None:
        self.last_step = facts.summary.current_stage
        if self.last_step is not None:
            self.printer.print_step(
                *self.last_step,
                self.watcher.run.columns.numbers_at(-1),
                facts.summary.loss,
                facts.summary.left,
            )


def printed_facts(event: Event, run: Path) -> Mapping[str, Any]:
    """Return an event's facts as printed during training: the record has null for NaN, and no paths."""
    facts = event.payload
    if event.kind == "eval":
        return {**facts, "parts": floats_from_json(facts["parts"])}
    return {**facts, "run": str(run)} if event.kind == "stopped" else facts


def summary_json(watcher: RunWatcher) -> str:
    """Return the status as a line of JSON: steps count from 1, unknown values are null."""
    facts = watcher.read()
    payload = {"run": str(watcher.run.run_dir), **summary_facts(facts.summary)}
    return dump_json({**payload, "steps": len(watcher.run.columns), "scorecard": facts.criteria}).decode()
