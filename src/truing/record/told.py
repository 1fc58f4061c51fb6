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

    A rollback undoes what a stage did from a checkpoint on. So does a run that is resumed from one, and all
    that later stages did.
    """

    def __init__(self) -> None:
        self._latest: dict[str, list[tuple[int, Hashable]]] = {}  # by stage a heap, its last update first
        self._begun: dict[str, None] = {}  # stages in their order

    def add(self, stage: str, step: int, what: Hashable) -> None:
        """Something was told of an update."""
        heappush(self._latest.setdefault(stage, []), (-step, what))

    def undone(self, event: Event) -> list[Hashable]:
        """What an event says no longer holds, each once."""
        match event.kind:
            case "stage":
                self._begun[event.payload["stage"]] = None
            case "rollback":
                return self._from(event.payload["stage"], event.payload["to"])
            case "resumed":
                stage, begun = event.payload["stage"], list(self._begun)
                later = begun[begun.index(stage) + 1 :] if stage in begun else []
                found = [what for each in later for what in self._from(each, 0)]
                return self._from(stage, event.payload["step"]) + found
            case _:
                pass
        return []

    def _from(self, stage: str, first: int) -> list[Hashable]:
        """What was told of a stage from an update on, the last first; it is told no longer."""
        latest, found = self._latest.get(stage, []), list[Hashable]()
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
