"""Findings of rules during a run, from its events: the inverse of ``live_doctor``'s event."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Literal

from truing.analysis.current_events import UndoTracker
from truing.doctor.verdict import VERDICT_ORDER, Marks, Verdict
from truing.errors import RecordError
from truing.record import Event


@dataclass(frozen=True)
class RecordedFinding:
    """A finding of a rule from the events of a run."""

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
    marks: Marks  # all marked tokens; sample_id and [start, end) are the clearest place
    time: float  # seconds since 1970, UTC
    undone: str = ""  # the reason, if the step is no longer part of the run

    @classmethod
    def from_event(cls, event: Event) -> "RecordedFinding":
        """Return a finding from its event."""
        values = {item.name: event.payload.get(item.name, MISSING) for item in fields(cls)}
        values |= {"time": event.time, "undone": ""}
        if missing := [name for name, value in values.items() if value is MISSING]:
            raise RecordError("a finding in events.jsonl is incomplete", got=f"no {', '.join(missing)}")
        try:
            return cls(**values | {"verdict": Verdict(values["verdict"]), "marks": _marks(values["marks"])})
        except (ValueError, TypeError, AttributeError) as error:
            raise RecordError("a finding in events.jsonl is malformed", got=error) from error


def _marks(marks: Mapping[str, Sequence[Sequence[int]]]) -> Marks:
    """Return marks from JSON."""
    return {name: tuple((start, end) for start, end in spans) for name, spans in marks.items()}


def recorded_findings(
    events: Iterable[Event], kind: Literal["finding", "fact"] = "finding"
) -> list[RecordedFinding]:
    """Return all findings and facts of rules, in the order of the run; undone ones carry the reason."""
    findings: list[RecordedFinding] = []
    standing = UndoTracker[int]()
    for event in events:
        if event.kind == kind and "code" in event.payload:
            finding = RecordedFinding.from_event(event)
            standing.add(finding.stage, finding.step, len(findings))
            findings.append(finding)
        for index in standing.undone(event):
            archive = event.payload.get("kept")
            why = f"undone by a rollback: see {archive}" if archive else "repeated when the run was resumed"
            findings[index] = replace(findings[index], undone=why)
    return findings


def current_findings(events: Iterable[Event]) -> set[tuple[str, str, str, int]]:
    """Return code, verdict, stage and step of every finding that was not undone."""
    findings: set[tuple[str, str, str, int]] = set()
    latest = UndoTracker[tuple[str, str, str, int]]()
    for event in events:
        if event.kind in ("finding", "fact") and "code" in event.payload:
            code, verdict, stage, step = (event.payload[key] for key in ("code", "verdict", "stage", "step"))
            latest.add(stage, step, (code, verdict, stage, step))
            findings.add((code, verdict, stage, step))
        findings.difference_update(latest.undone(event))
    return findings


def strongest_by_rule(findings: Sequence[RecordedFinding]) -> tuple[RecordedFinding, ...]:
    """Return each rule's strongest and earliest finding, preferably not undone; strong rules first."""
    by_code: dict[str, RecordedFinding] = {}
    for each in sorted(findings, key=lambda each: (VERDICT_ORDER.index(each.verdict), bool(each.undone))):
        by_code.setdefault(each.code, each)
    return tuple(by_code.values())
