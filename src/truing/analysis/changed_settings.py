"""What changed within a stage, by its events: rollbacks of a guard, and more steps than it began with."""

from collections.abc import Iterable, Mapping
from typing import Any

from truing.record.reader import Event


def standing_rollbacks(events: Iterable[Event], stage: str) -> list[Mapping[str, Any]]:
    """Return the rollbacks of a stage that its steps are under, in order.

    One that a kill interrupted is recorded twice, with one archive. A run that goes back to before the step
    that a rollback returned to has its checkpoint of before.
    """
    standing: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event.payload.get("stage") != stage:
            continue
        if event.kind == "rollback":
            standing[event.payload["kept"]] = event.payload
        elif event.kind == "resumed":
            standing = {name: each for name, each in standing.items() if each["to"] <= event.payload["step"]}
    return list(standing.values())


def planned_steps(events: Iterable[Event], stage: str, step: int, steps: int) -> int:
    """Return how many steps a stage was to have when its step ``step`` was trained.

    Args:
        events: of the run.
        stage: of the step.
        step: of the step, from 0.
        steps: of the stage, as the recipe has it now.
    """
    plans: list[tuple[int, int]] = []  # from which step on, and how many steps
    for event in events:
        payload = event.payload
        if payload.get("stage") != stage:
            continue
        if event.kind == "longer":
            plans = [*(plans or [(0, payload["before"])]), (payload["step"], payload["steps"])]
        elif event.kind in ("resumed", "rollback"):  # these steps are trained again, as planned now
            back_to = payload["step"] if event.kind == "resumed" else payload["to"]
            plans = [(min(start, back_to), planned) for start, planned in plans]
    return next((planned for start, planned in reversed(plans) if start <= step), steps)
