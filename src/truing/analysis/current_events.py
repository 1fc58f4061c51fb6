"""Current evaluations of a run: all except those of steps that were undone."""

from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from truing.record.events import Event

Record = TypeVar("Record", bound=Hashable)

MAX_DIGITS = 12  # of a step's number in an evaluation's name


def mid_stage_name(stage: str, steps: int) -> str:
    """Return the name of an evaluation after ``steps`` steps within a stage."""
    return f"{stage}@{steps}"


def parse_mid_stage_name(name: str) -> tuple[str, int] | None:
    """Return stage and steps of an evaluation within a stage; None for others."""
    stage, _, steps = name.rpartition("@")
    return (stage, int(steps)) if steps.isdecimal() and len(steps) <= MAX_DIGITS else None


class UndoTracker(Generic[Record]):
    """Tracks records of steps until the steps are undone.

    A rollback undoes the steps of a stage from a checkpoint on. Resuming from one also undoes all later
    stages.
    """

    def __init__(self) -> None:
        self._latest: dict[str, list[tuple[int, Record]]] = {}  # a heap per stage, last step first
        self._stages: dict[str, None] = {}  # stages in their order

    def add(self, stage: str, step: int, record: Record) -> None:
        """Add a record of a step."""
        heappush(self._latest.setdefault(stage, []), (-step, record))

    def undone(self, event: Event) -> list[Record]:
        """Return the records that an event undoes, each once."""
        match event.kind:
            case "stage":
                self._stages[event.payload["stage"]] = None
            case "rollback":
                return self._from(event.payload["stage"], event.payload["to"])
            case "resumed":
                stage, stages = event.payload["stage"], list(self._stages)
                later = stages[stages.index(stage) + 1 :] if stage in stages else []
                dependents = [record for name in later for record in self._from(name, 0)]
                return self._from(stage, event.payload["step"]) + dependents
            case _:
                pass
        return []

    def _from(self, stage: str, first: int) -> list[Record]:
        """Remove and return the records of a stage from a step on, last first."""
        latest, undone = self._latest.get(stage, []), list[Record]()
        while latest and -latest[0][0] >= first:
            undone.append(heappop(latest)[1])
        return undone


def current_evaluations(events: Iterable[Event]) -> dict[str, Mapping[str, Any]]:
    """Return the payload of each current evaluation by name, in order.

    An evaluation after a stage that trains on, since it was made longer, is one within the stage.
    """
    evaluations: dict[str, Mapping[str, Any]] = {}
    tracker = UndoTracker[str]()
    for event in events:
        if event.kind == "eval":
            name = event.payload["name"]
            evaluations[name] = event.payload
            if (place := _place(event.payload)) and place[1] > 0:
                tracker.add(place[0], place[1] - 1, name)
        for name in tracker.undone(event):
            evaluations.pop(name, None)  # a name may be recorded twice
        match event.payload:
            case {"stage": str(stage), "steps": int(steps), "first_step": int(done)} if (
                event.kind == "stage" and done < steps and f"after_{stage}" in evaluations
            ):
                middle = mid_stage_name(stage, done)
                evaluations = {
                    middle if name == f"after_{stage}" else name: each for name, each in evaluations.items()
                }
                tracker.add(stage, done - 1, middle)
            case _:
                pass
    return {name: {**payload, "name": name} for name, payload in evaluations.items()}


def current_events(events: Iterable[Event], kind: str) -> list[Event]:
    """Return the events of a kind that were made at a step, but those of steps that were undone."""
    tracker, current = UndoTracker[int](), dict[int, Event]()
    for number, event in enumerate(events):
        match event.payload:
            case {"stage": str(stage), "step": int(step)} if event.kind == kind:
                tracker.add(stage, step, number)
                current[number] = event
            case _:
                pass
        for undone in tracker.undone(event):
            current.pop(undone, None)
    return list(current.values())


def fork_start(events: Iterable[Event], stage: str) -> int:
    """Return the steps of a stage that a fork has of its parent; 0 for a run that is not a fork within it."""
    forks = [event.payload for event in events if event.kind == "forked"]
    return forks[-1]["step"] if forks and forks[-1]["stage"] == stage else 0


def _place(payload: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return stage and steps of an evaluation; earlier versions recorded them in some names only."""
    match payload:
        case {"stage": str(stage), "step": int(step)}:
            return stage, step
        case _:
            return parse_mid_stage_name(payload["name"])
