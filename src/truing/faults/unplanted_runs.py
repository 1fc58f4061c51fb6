"""The recipes of faults, run without them: what is said of these is not said of a fault."""

import json
from contextlib import nullcontext
from dataclasses import replace

from truing.faults.fault import Fault
from truing.faults.planted import FAULTS


def unplanted_runs() -> dict[str, Fault]:
    """A sound run of each recipe of a fault, by name; faults of one recipe share theirs."""
    return {twin.name: twin for twin in map(unplanted_run, FAULTS.values())}


def unplanted_run(fault: Fault) -> Fault:
    """The run of a fault's recipe in which nothing is wrong, named after the first fault of that recipe."""
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
