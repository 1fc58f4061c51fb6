"""How a run is evaluated: a command, or a call in Python for what its recipe does not have."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from truing.config import Recipe, resolve
from truing.config.run_trust import outside_actions
from truing.record import RunReader


def evaluate_command(run: Path, *overrides: str, program: str = "truing") -> str:
    """Return the command, with overrides of the recipe; ``program`` calls Truing."""
    reader = RunReader(run)
    recipe, given = resolve(reader.run_fact("recipe")), reader.run_fact("given_in_python")
    return evaluation_of(run, recipe, given, *overrides, program=program)


def evaluation_of(
    run: Path, recipe: Recipe, given_in_python: Sequence[str], *overrides: str, program: str = "truing"
) -> str:
    """Return the same for a run whose recipe is known."""
    if given_in_python:
        changes = f", overrides={list(overrides)}" if overrides else ""
        return f'truing.evaluate("{run}"{changes}{"".join(f", {name}=…" for name in given_in_python)})'
    trust = ["--trust"] if any(outside_actions(recipe)) else []
    return f"{program} {shlex.join(['eval', str(run), *overrides, *trust])}"
