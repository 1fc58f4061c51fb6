"""What the events of a run say that still holds: evaluations, less those of updates that were undone."""

from collections.abc import Iterable, Mapping
from typing import Any

from truing.record.reader import Event


def midway(stage: str, done: int) -> str:
    """The name of an evaluation after so many steps of a stage that goes on."""
    return f"{stage}@{done}"


def evaluations_told(events: Iterable[Event]) -> dict[str, Mapping[str, Any]]:
    """The payload of each evaluation by its name, in the order of the run."""
    found: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event.kind == "eval":
            found[event.payload["name"]] = event.payload
        if event.kind == "rollback":
            undone = range(event.payload["to"] + 1, event.payload["step"] + 2)
            for name in (midway(event.payload["stage"], done) for done in undone):
                found.pop(name, None)
    return found
