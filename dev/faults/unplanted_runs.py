"""The recipes of faults, run without the fault, to compare findings."""

import json
from contextlib import nullcontext
from dataclasses import replace

from dev.faults.fault import Fault
from dev.faults.planted import FAULTS


def unplanted_runs() -> dict[str, Fault]:
    """Return a healthy run of each recipe of a fault, by name; faults of one recipe share theirs.

    A fault that is its recipe has none, nor one of a recipe that is refused without it.
    """
    return {
        twin.name: twin for twin in (unplanted_run(fault) for fault in FAULTS.values() if _is_planted(fault))
    }


def _is_planted(fault: Fault) -> bool:
    """Return whether only the plant makes a fault's run ill."""
    return fault.plant is not nullcontext and fault.expected != ()


def unplanted_run(fault: Fault) -> Fault:
    """Return the run of a fault's recipe without the fault, named after the first fault of that recipe."""
    first = next(name for name, each in FAULTS.items() if _recipe(each) == _recipe(fault))
    return replace(
        fault,
        name=f"without-{first}",
        numbers=(),
        what="a fault's recipe without the fault",
        plant=nullcontext,
        expected=(),
        healthy=True,
    )


def _recipe(fault: Fault) -> str:
    return json.dumps([dict(fault.changes), fault.reward is None], sort_keys=True)
