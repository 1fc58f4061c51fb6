"""What the events of a run say that still holds: evaluations, less those of updates that were undone."""

from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any

from truing.record.reader import Event

DIGITS = 12  # of an update's number in an evaluation's name: more is no number of an update


def midway(stage: str, done: int) -> str:
    """The name of an evaluation after so many steps of a stage that goes on."""
    return f"{stage}@{done}"


def parted(name: str) -> tuple[str, int] | None:
    """The stage and the steps of an evaluation that was made midway; None of another."""
    stage, _, done = name.rpartition("@")
    return (stage, int(done)) if done.isdecimal() and len(done) <= DIGITS else None


class Standing:
    """What was told of updates, as long as they stand.

    A rollback undoes what a stage did from a checkpoint on, and so does a run that is resumed from one.
    """

    def __init__(self) -> None:
        self._latest: dict[str, list[tuple[int, Hashable]]] = {}  # by stage a heap, its last update first

    def add(self, stage: str, step: int, what: Hashable) -> None:
        """Something was told of an update."""
        heappush(self._latest.setdefault(stage, []), (-step, what))

    def undone(self, event: Event) -> list[Hashable]:
        """What an event says no longer holds, each once."""
        if event.kind not in ("rollback", "resumed"):
            return []
        latest = self._latest.get(event.payload["stage"], [])
        first = event.payload["to" if event.kind == "rollback" else "step"]
        found: list[Hashable] = []
        while latest and -latest[0][0] >= first:
            found.append(heappop(latest)[1])
        return found


def evaluations_told(events: Iterable[Event]) -> dict[str, Mapping[str, Any]]:
    """The payload of each evaluation by its name, in the order of the run."""
    found: dict[str, Mapping[str, Any]] = {}
    standing = Standing()
    for event in events:
        if event.kind == "eval":
            name = event.payload["name"]
            found[name] = event.payload
            if at := parted(name):
                standing.add(at[0], at[1] - 1, name)
        for name in standing.undone(event):
            found.pop(str(name), None)  # it may have been told twice
    return found
