"""Events of a run as text: the log, and evaluations."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from truing.analysis.current_events import current_evaluations, parse_mid_stage_name
from truing.analysis.estimate import read_estimate
from truing.analysis.incremental_reader import IncrementalReader
from truing.record import Event

HIDDEN_KINDS = ("boundary", "numbers", "checkpoint")
"""Events that the log leaves out."""


def event_log(events: Sequence[Event], limit: int = 200) -> list[dict[str, Any]]:
    """Return the events as text, newest first, without the hidden kinds."""
    visible = [event for event in events if event.kind not in HIDDEN_KINDS][-limit:]
    return [
        {"when": _when(event.time), "kind": event.kind, "text": _text(event)} for event in reversed(visible)
    ]


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _text(event: Event) -> str:
    """Return an event as text."""
    payload = event.payload
    match event.kind:
        case "eval":
            return f"{payload['name']}: {read_estimate(payload)}"
        case "stage":
            return f"{payload['stage']}: {payload['steps']} steps, from {payload['first_step'] + 1}"
        case "rollback":
            then = "".join(f"; {change}" for change in payload.get("change", ()))
            return f"{payload['stage']}: back to {payload['to']} steps: {payload['reason']}{then}"
        case "resumed":
            return f"{payload['stage']}: resumed after {payload['step']} steps"
        case "finished":
            return ""
    step = payload.get("step")
    prefix = f"{payload.get('stage')} {step + 1}: " if isinstance(step, int) else ""
    text = next((payload[name] for name in ("text", "message", "reason") if payload.get(name)), None)
    text = text or ", ".join(f"{key} {value}" for key, value in payload.items())
    return f"{prefix}{str(text)[:2000]}"


def incidents_at(events: Sequence[Event], stage: str, step: int) -> list[str]:
    """Return the incidents of a step."""
    payload = [event.payload for event in events if event.kind == "incident"]
    return [str(each["text"]) for each in payload if (each.get("stage"), each.get("step")) == (stage, step)]


def startup_findings(events: Sequence[Event]) -> list[str]:
    """Return findings about tasks, rewards and recipe from before training, which have no rule."""
    payload = [event.payload for event in events if event.kind == "finding" and "code" not in event.payload]
    return [str(each.get("text", ""))[:2000] for each in payload]


def evaluations_at(run: IncrementalReader) -> list[dict[str, Any]]:
    """Return each evaluation with its number of preceding steps and its interval."""
    columns = run.columns
    offsets = {name: start - int(columns.step[start]) for name, start, _ in columns.stages}
    ends = {name: end for name, _, end in columns.stages}
    stage_ends = {"base": 0, **{f"after_{name}": end for name, end in ends.items()}}
    evaluations = []
    for name, payload in current_evaluations(run.events).items():
        middle = parse_mid_stage_name(name)
        steps_before = (
            offsets[middle[0]] + middle[1] if middle and middle[0] in offsets else stage_ends.get(name)
        )
        if steps_before is not None:
            evaluations.append({"name": name, "x": steps_before, **asdict(read_estimate(payload))})
    return evaluations
