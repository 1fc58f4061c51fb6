"""Reads events of a run of unknown origin: one bad line loses only itself."""

from pathlib import Path

from truing.record.events import Event
from truing.utils.format import shorten
from truing.utils.jsonl import complete_lines
from truing.utils.parse import parse_finite_json


def read_events(path: Path) -> tuple[list[Event], list[str]]:
    """Return the valid events, and what is wrong with the others."""
    events, problems = list[Event](), list[str]()
    for number, line in enumerate(complete_lines(path), start=1):
        try:
            events.append(Event.from_json(parse_finite_json(line)))
        except ValueError as error:  # also a Misfit
            problems.append(f"line {number} of {path.name} is left out: {shorten(str(error), 200)}")
    return events, problems
