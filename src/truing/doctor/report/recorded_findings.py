"""What rules told while a run went on, as its events have it: the inverse of ``live.told``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Literal

from truing.analysis.current_events import UndoTracker
from truing.doctor.verdict import FINDING_VERDICTS, VERDICT_ORDER, Marks, Verdict
from truing.errors import RecordError
from truing.record import Event


@dataclass(frozen=True)
class RecordedFinding:
    """A finding of a rule as the run told it while it went on."""

    code: str
    name: str
    verdict: Verdict
    stage: str
    step: int
    sample_id: str
    start: int
    end: int
    what: str
    got: str
    expected: str
    remedy: str
    log10_odds: float | None
    marks: Marks  # all that it means, where sample_id and [start, end) are what shows it best
    time: float  # seconds since 1970, UTC
    undone: str = ""  # what became of the update, where it is no longer the run's

    @classmethod
    def from_event(cls, event: Event) -> "RecordedFinding":
        """A finding from its event."""
        told = {item.name: event.payload.get(item.name, MISSING) for item in fields(cls)}
        told |= {"time": event.time, "undone": ""}
        if missing := [name for name, value in told.items() if value is MISSING]:
            raise RecordError("a finding in events.jsonl is not whole", got=f"no {', '.join(missing)}")
        try:
            return cls(**told | {"verdict": Verdict(told["verdict"]), "marks": _marks(told["marks"])})
        except (ValueError, TypeError, AttributeError) as error:
            raise RecordError("a finding in events.jsonl is not as it should be", got=error) from error


def _marks(told: Mapping[str, Sequence[Sequence[int]]]) -> Marks:
    """Marks from JSON."""
    return {name: tuple((start, end) for start, end in spans) for name, spans in told.items()}


def recorded_findings(
    events: Iterable[Event], kind: Literal["finding", "fact"] = "finding"
) -> list[RecordedFinding]:
    """All that rules found, or stated as facts, in the order of the run; what was undone is told so."""
    found: list[RecordedFinding] = []
    standing = UndoTracker()
    for event in events:
        if event.kind == kind and "code" in event.payload:
            told = RecordedFinding.from_event(event)
            if told.verdict in FINDING_VERDICTS or kind == "fact":
                standing.add(told.stage, told.step, len(found))
                found.append(told)
        for index in standing.undone(event):
            kept = event.payload.get("kept")
            why = f"undone by a rollback: see {kept}" if kept else "made anew when the run was resumed"
            found[index] = replace(found[index], undone=why)
    return found


def current_findings(events: Iterable[Event]) -> set[tuple[str, str, str, int]]:
    """Code, verdict, stage and update of everything that rules told, less what was undone since."""
    found, latest = set[tuple[str, str, str, int]](), UndoTracker()
    for event in events:
        if event.kind in ("finding", "fact") and "code" in event.payload:
            code, verdict, stage, step = (event.payload[key] for key in ("code", "verdict", "stage", "step"))
            latest.add(stage, step, (code, verdict, stage, step))
            found.add((code, verdict, stage, step))
        found.difference_update(latest.undone(event))
    return found


def strongest_by_rule(found: Sequence[RecordedFinding]) -> tuple[RecordedFinding, ...]:
    """Of each rule the strongest and earliest, of what still holds if anything does; strong rules first."""
    by_code: dict[str, RecordedFinding] = {}
    for each in sorted(found, key=lambda each: (VERDICT_ORDER.index(each.verdict), bool(each.undone))):
        by_code.setdefault(each.code, each)
    return tuple(by_code.values())
