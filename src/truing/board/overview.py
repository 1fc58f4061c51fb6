"""All runs on one screen: alive or not, what they earn, what was found, how they stand, what they cost."""

import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from truing.board.opened import Opened
from truing.board.xray import short
from truing.glance import Glance, Told, glance
from truing.record import Event
from truing.scorecard import scorecard


def line(opened: Opened) -> dict[str, Any]:
    """A run in one line."""
    seen = glance(opened.run)
    events = opened.run.events
    return {
        "run": opened.name,
        **glance_facts(seen),
        "created": str(opened.run.facts.get("created", "")),
        "last": max((event.time for event in events[-1:]), default=0.0),
        "updates": len(opened.run.columns),
        "device": str(opened.run.facts.get("machine", {}).get("device", "")),
        "model": str(opened.run.facts.get("model", {}).get("name", "")),
    }


def glance_facts(seen: Glance) -> dict[str, Any]:
    """A glance as JSON has it."""
    told = asdict(seen)
    found = [finding(each) for each in seen.findings]
    return told | {"findings": found, "at": seen.at, "why": short(seen.why)}


def finding(each: Told) -> dict[str, Any]:
    """A finding as JSON has it; updates count from 1."""
    words = {name: short(getattr(each, name)) for name in ("what", "got", "expected", "remedy")}
    return asdict(each) | words | {"verdict": str(each.verdict), "update": each.step + 1}


def cards(opened: Opened) -> list[dict[str, Any]]:
    """The success criteria of report 000, as they stand; none where the recipe or the device is not known."""
    device = opened.run.facts.get("machine", {}).get("device")
    if isinstance(opened.recipe, str) or device is None:
        return []
    kinds = [event.kind for event in opened.run.events]
    return [asdict(each) for each in scorecard(opened.run.columns, opened.recipe, device, kinds)]


def verdicts(opened: Opened) -> dict[str, int]:
    """How many criteria pass, fail and are not judged."""
    return dict(Counter(each["verdict"] for each in cards(opened)))


def happened(events: list[Event], most: int = 200) -> list[dict[str, Any]]:
    """What the run told, newest first: all but first tokens in words, and names of numbers."""
    hidden = ("boundary", "numbers", "checkpoint")
    told = [event for event in events if event.kind not in hidden][-most:]
    return [{"when": _when(event.time), "kind": event.kind, "text": _text(event)} for event in reversed(told)]


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _text(event: Event) -> str:
    """An event in words."""
    told = event.payload
    match event.kind:
        case "eval":
            each = told["estimate"]
            return f"{told['name']}: {each['mean']:.3f} [{each['low']:.3f}, {each['high']:.3f}]"
        case "stage":
            return f"{told['stage']}: {told['steps']} updates, from {told['first_step'] + 1}"
        case "rollback":
            return f"{told['stage']}: back to {told['to']} updates: {told['reason']}"
        case "finished":
            return ""
    place = f"{told['stage']} {told['step'] + 1}: " if "stage" in told and "step" in told else ""
    said = (
        told.get("text") or told.get("reason") or ", ".join(f"{key} {value}" for key, value in told.items())
    )
    return f"{place}{str(said)[:2000]}"
