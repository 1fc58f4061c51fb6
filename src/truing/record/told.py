"""What the events of a run say that still holds: evaluations, less those of updates that were undone."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from truing.record.lines import whole_lines
from truing.record.reader import Event

NUMBER = (int, float)
NEEDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "numbers": {"names": list},
    "stage": {"stage": str, "steps": int, "first_step": int},
    "boundary": {"stage": str, "step": int, "lines": list},
    "eval": {"name": str, "estimate": dict},
    "finding": {
        **dict.fromkeys(("code", "name", "verdict", "stage", "sample_id"), str),
        **dict.fromkeys(("what", "got", "expected", "remedy"), str),
        **dict.fromkeys(("step", "start", "end"), int),
        "log10_odds": (*NUMBER, type(None)),
        "marks": dict,
    },
    "rollback": {"stage": str, "step": int, "to": int, "reason": str, "kept": str},
    "resumed": {"stage": str, "step": int},
    "gave_up": {"reason": str},
    "stopped": {"error": str, "reason": str},
}
"""What an event of a kind must say so that it can be shown. A finding of no rule has a text alone."""

VERDICTS = ("PROVEN", "EVIDENCE", "SUSPECT", "CANNOT TELL", "NOT CHECKED", "CLEAN")
LATEST = 253402300800  # the year 10000: beyond it a date has no name
ESTIMATE = ("mean", "low", "high")


def midway(stage: str, done: int) -> str:
    """The name of an evaluation after so many steps of a stage that goes on."""
    return f"{stage}@{done}"


def undone(event: Event, stage: str, step: int) -> bool:
    """Whether an event says that this update, if it was made before, no longer holds.

    A rollback undoes what a stage did from a checkpoint on, and so does a run that is resumed from one.
    """
    told = event.payload
    if event.kind not in ("rollback", "resumed") or told["stage"] != stage:
        return False
    return step >= told["to" if event.kind == "rollback" else "step"]


def evaluations_told(events: Iterable[Event]) -> dict[str, Mapping[str, Any]]:
    """The payload of each evaluation by its name, in the order of the run."""
    found: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event.kind == "eval":
            found[event.payload["name"]] = event.payload
        for name in list(found) if event.kind in ("rollback", "resumed") else ():
            stage, _, done = name.rpartition("@")
            if done.isdecimal() and undone(event, stage, int(done) - 1):
                del found[name]
    return found


def read_events(path: Path) -> tuple[list[Event], list[str]]:
    """Events that say what their kind is to say, and what is wrong with the others.

    For whoever shows a run that a stranger made, or another version: one bad line costs no more than itself.
    """
    events, odd = list[Event](), list[str]()
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            event = Event.from_json(json.loads(line))
            wrong = _wrong(event)
        except (ValueError, TypeError, RecursionError) as error:
            wrong = str(error)
        if wrong:
            odd.append(f"line {number} of {path.name} is left out: {wrong[:200]}")
        else:
            events.append(event)
    return events, odd


def _wrong(event: Event) -> str:
    """Why an event cannot be shown; "" where it can."""
    told = event.payload
    if not (_is(event.time, NUMBER) and 0 <= event.time < LATEST):
        return "its time is none"
    if not (isinstance(event.kind, str) and isinstance(told, dict)):
        return "it is no event"
    needs = {} if event.kind == "finding" and "code" not in told else NEEDS.get(event.kind, {})
    if wrong := [name for name, kind in needs.items() if name not in told or not _is(told[name], kind)]:
        return f"{event.kind} without {', '.join(wrong)}"
    if "verdict" in needs and told["verdict"] not in VERDICTS:
        return f"finding with the verdict {told['verdict']}"
    if "marks" in needs and not all(map(_is_spans, told["marks"].values())):
        return "finding with marks that are no tokens"
    if event.kind == "numbers" and not all(isinstance(name, str) for name in told["names"]):
        return "numbers with a name that is none"
    if event.kind == "eval" and not all(
        _is(told["estimate"].get(name, ""), (*NUMBER, type(None))) for name in ESTIMATE
    ):
        return f"eval without {', '.join(ESTIMATE)}"
    return ""


def _is_spans(value: object) -> bool:
    """Whether a value is stretches of tokens, [start, end) each."""
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and all(_is(token, int) for token in each) for each in value
    )


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    """Whether a value is of a kind; true and false are no numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)
