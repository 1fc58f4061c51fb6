"""Validates events: in a run of unknown origin, one bad line loses only itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truing.analysis.estimate import ASSUMPTIONS, BOUNDS, COUNTS
from truing.record.reader import Event
from truing.utils.jsonl import complete_lines

NUMBER_TYPES = (int, float)
FINDING_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("code", "name", "verdict", "stage", "sample_id"), str),
    **dict.fromkeys(("what", "got", "expected", "remedy"), str),
    **dict.fromkeys(("step", "start", "end"), int),
    "log10_odds": (*NUMBER_TYPES, type(None)),
    "marks": dict,
}
"""Fields of a finding or fact of a rule."""

REQUIRED_FIELDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "numbers": {"names": list},
    "stage": {"stage": str, "steps": int, "first_step": int},
    "boundary": {"stage": str, "step": int, "lines": list},
    "eval": {"name": str, "estimate": dict},
    "finding": FINDING_FIELDS,
    "fact": FINDING_FIELDS,
    "incident": {"what": str, "text": str},
    "rollback": {"stage": str, "step": int, "to": int, "reason": str, "kept": str},
    "reference": {"stage": str, "step": int},
    "resumed": {"stage": str, "step": int},
    "longer": {"stage": str, "step": int, "before": int, "steps": int},
    "gave_up": {"reason": str},
    "stopped": {"error": str, "reason": str},
}
"""Required fields by kind of event. A finding without a rule has only a text."""

VERDICTS = ("PROVEN", "EVIDENCE", "SUSPECT", "CANNOT TELL", "FACT", "NOT CHECKED", "CLEAN")
MAX_TIME = 253402300800  # the year 10000, beyond the range of dates
MAX_DIGITS = 15  # of an integer: browsers lose precision beyond, and the longest cannot be printed


def read_events(path: Path) -> tuple[list[Event], list[str]]:
    """Return the valid events, and what is wrong with the others."""
    events, problems = list[Event](), list[str]()
    for number, line in enumerate(complete_lines(path), start=1):
        try:
            event = Event.from_json(json.loads(line, parse_int=_parse_int, parse_constant=_refuse_constant))
            problem = _problem(event)
        except (ValueError, TypeError, RecursionError) as error:
            problem = str(error)
        if problem:
            problems.append(f"line {number} of {path.name} is left out: {problem[:200]}")
        else:
            events.append(event)
    return events, problems


def _parse_int(digits: str) -> int:
    if len(digits.removeprefix("-")) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _problem(event: Event) -> str:
    """Return why an event is invalid; "" if it is valid."""
    payload = event.payload
    if not (_is_of_type(event.time, NUMBER_TYPES) and 0 <= event.time < MAX_TIME):
        return "its time is none"
    if not (isinstance(event.kind, str) and isinstance(payload, dict)):
        return "it is no event"
    needs = {} if event.kind == "finding" and "code" not in payload else REQUIRED_FIELDS.get(event.kind, {})
    if invalid := [
        name for name, kind in needs.items() if name not in payload or not _is_of_type(payload[name], kind)
    ]:
        return f"{event.kind} without {', '.join(invalid)}"
    if "verdict" in needs and payload["verdict"] not in VERDICTS:
        return f"{event.kind} with the verdict {payload['verdict']}"
    if "marks" in needs and not all(
        _is_text(name) and _is_spans(spans) for name, spans in payload["marks"].items()
    ):
        return f"{event.kind} with marks that are no tokens of samples"
    if event.kind == "numbers" and not all(map(_is_text, payload["names"])):
        return "numbers with a name that is none"
    if event.kind == "boundary" and not all(map(_is_line, payload["lines"])):
        return "boundary with a line that is none"
    return _evaluation_problem(payload) if event.kind == "eval" else ""


def _evaluation_problem(payload: Mapping[str, Any]) -> str:
    """Return why an evaluation is invalid; earlier versions lack pass@k."""
    passing = payload.get("pass_at", {})
    if not (isinstance(passing, dict) and all(k.isdecimal() and len(k) <= MAX_DIGITS for k in passing)):
        return "eval with pass_at that is none"
    estimates = (payload["estimate"], *passing.values())
    return next(filter(None, map(_estimate_problem, estimates)), "")


def _estimate_problem(payload: object) -> str:
    """Return why an estimate is invalid; earlier versions lack the number of tasks."""
    if not isinstance(payload, dict):
        return "eval with an estimate that is none"
    if not all(_is_of_type(payload.get(name, ""), (*NUMBER_TYPES, type(None))) for name in BOUNDS):
        return f"eval without {', '.join(BOUNDS)}"
    if not all(_is_of_type(payload.get(name), (int, type(None))) for name in COUNTS):
        return f"eval with {', '.join(COUNTS)} that are no numbers"
    if payload.get("supposes", "") not in ASSUMPTIONS:
        return f"eval that supposes {payload['supposes']}"
    return ""


def _is_spans(value: object) -> bool:
    """Return whether a value is a list of token spans [start, end)."""
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and all(_is_of_type(token, int) for token in each)
        for each in value
    )


def _is_line(value: object) -> bool:
    """Return whether a value is a line of text with its rules."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)


def _is_text(value: object) -> bool:
    """Return whether a value is encodable text, without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _is_of_type(value: object, kind: type | tuple[type, ...]) -> bool:
    """Return whether a value has a type; booleans are not numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)
