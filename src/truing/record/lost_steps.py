"""The steps whose lines steps.jsonl has lost: gaps in their numbers, and what events say was recorded."""

from collections.abc import Mapping, Sequence

from truing.record.events import Event
from truing.record.step_columns import StepColumns


def lost_steps(columns: StepColumns, events: Sequence[Event]) -> dict[str, int]:
    """Return the number of lost steps, of stages that lost any.

    Events tell of steps before and after the recorded ones: a stage begins with step 0, and a checkpoint
    follows the last step that it holds. The last step of a killed run may be lost; no checkpoint has it.
    """
    lost = dict(columns.missing_steps)
    ranges = {name: columns.step[start:end] for name, start, end in columns.stages}
    for stage, count in _steps_at_least(events).items():
        first, last = (int(ranges[stage][0]), int(ranges[stage].max())) if stage in ranges else (0, -1)
        missing = first + max(0, count - 1 - last)
        if missing:
            lost[stage] = lost.get(stage, 0) + missing
    return lost


def _steps_at_least(events: Sequence[Event]) -> dict[str, int]:
    """Return how many steps each stage has at least, in the order of stages."""
    counts: dict[str, int] = {}
    for event in events:
        stage, count = _position(event)
        begins = stage and event.kind in ("resumed", "stage")
        if begins and stage in counts:  # later stages are trained anew
            counts = dict(list(counts.items())[: list(counts).index(stage)])
        if begins or stage in counts:
            counts[stage] = count
    return counts


def _position(event: Event) -> tuple[str, int]:
    """Return the stage of an event and the steps of it that are done; ("", 0) for other events."""
    facts = event.payload if isinstance(event.payload, Mapping) else {}
    if event.kind == "checkpoint":
        stage, _, count = str(facts.get("name")).rpartition("-")
        count = int(count) if count.isdecimal() and len(count) < 19 else None
    else:
        key = {"stage": "first_step", "resumed": "step", "rollback": "to"}.get(event.kind, "")
        stage, count = facts.get("stage"), facts.get(key)
    return (stage, count) if isinstance(stage, str) and isinstance(count, int) else ("", 0)
