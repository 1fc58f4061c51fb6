"""How a run is evaluated: a command, or a call in Python for what its recipe does not have."""

import shlex
from pathlib import Path

from truing.config import resolve
from truing.config.run_trust import outside_actions
from truing.record import RunReader


def evaluate_command(run: Path, *overrides: str, program: str = "truing") -> str:
    """Return the command, with overrides of the recipe; ``program`` calls Truing."""
    reader = RunReader(run)
    recipe = resolve(reader.run_fact("recipe"))
    if given := reader.run_fact("given_in_python"):
        changes = f", overrides={list(overrides)}" if overrides else ""
        return f'truing.evaluate("{run}"{changes}{"".join(f", {name}=…" for name in given)})'
    trust = ["--trust"] if any(outside_actions(recipe)) else []
    return f"{program} {shlex.join(['eval', str(run), *overrides, *trust])}"
