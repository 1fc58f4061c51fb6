"""What a run told of itself, in words: its events, its first tokens, its evaluations."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from truing.analysis.current_events import current_evaluations, parse_mid_stage_name
from truing.analysis.estimate import read_estimate
from truing.analysis.incremental_reader import IncrementalReader
from truing.record import Event

HIDDEN_KINDS = ("boundary", "numbers", "checkpoint")
"""Events that a log of the run need not show."""


def event_log(events: Sequence[Event], most: int = 200) -> list[dict[str, Any]]:
    """What the run told, newest first: all but first tokens in words, and names of numbers."""
    told = [event for event in events if event.kind not in HIDDEN_KINDS][-most:]
    return [{"when": _when(event.time), "kind": event.kind, "text": _text(event)} for event in reversed(told)]


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _text(event: Event) -> str:
    """An event in words."""
    told = event.payload
    match event.kind:
        case "eval":
            return f"{told['name']}: {read_estimate(told)}"
        case "stage":
            return f"{told['stage']}: {told['steps']} updates, from {told['first_step'] + 1}"
        case "rollback":
            return f"{told['stage']}: back to {told['to']} updates: {told['reason']}"
        case "resumed":
            return f"{told['stage']}: from {told['step']} updates on"
        case "finished":
            return ""
    step = told.get("step")
    place = f"{told.get('stage')} {step + 1}: " if isinstance(step, int) else ""
    said = next((told[name] for name in ("text", "message", "reason") if told.get(name)), None)
    said = said or ", ".join(f"{key} {value}" for key, value in told.items())
    return f"{place}{str(said)[:2000]}"


def incidents_at(events: Sequence[Event], stage: str, step: int) -> list[str]:
    """What else was told of an update."""
    told = [event.payload for event in events if event.kind == "incident"]
    return [str(each["text"]) for each in told if (each.get("stage"), each.get("step")) == (stage, step)]


def startup_findings(events: Sequence[Event]) -> list[str]:
    """What was found before anything was trained: of the tasks, the rewards and the recipe, by no rule."""
    told = [event.payload for event in events if event.kind == "finding" and "code" not in event.payload]
    return [str(each.get("text", ""))[:2000] for each in told]


def first_token_lines(events: Sequence[Event], most: int = 20) -> list[dict[str, Any]]:
    """First tokens of the last such updates in words."""
    told = [event.payload for event in events if event.kind == "boundary"][-most:]
    return [{"stage": each["stage"], "update": each["step"] + 1, "lines": each["lines"]} for each in told]


def evaluations_at(run: IncrementalReader) -> list[dict[str, Any]]:
    """Each evaluation after how many updates of the run it was made, with its interval."""
    columns = run.columns
    before = {name: start - int(columns.step[start]) for name, start, _ in columns.stages}
    ends = {name: end for name, _, end in columns.stages}
    placed = {"base": 0, **{f"after_{name}": end for name, end in ends.items()}}
    found = []
    for name, told in current_evaluations(run.events).items():
        midway = parse_mid_stage_name(name)
        at = before[midway[0]] + midway[1] if midway and midway[0] in before else placed.get(name)
        if at is not None:
            found.append({"name": name, "x": at, **asdict(read_estimate(told))})
    return found
