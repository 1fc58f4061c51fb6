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
    recipe = resolve(reader.run_fact("recipe"))
    if given := recorded_from_python(reader, recipe):
        changes = f", overrides={list(overrides)}" if overrides else ""
        return f'truing.evaluate("{run}"{changes}{"".join(f", {name}=…" for name in given)})'
    trust = ["--trust"] if any(outside_actions(recipe)) else []
    return f"{program} {shlex.join(['eval', str(run), *overrides, *trust])}"


def recorded_from_python(reader: RunReader, recipe: Recipe) -> Sequence[str]:
    """Return which of env, rewards and tools a run has from Python; earlier versions record env alone."""
    return reader.run_json().get("given_in_python", [] if "name" in recipe.env else ["env"])
