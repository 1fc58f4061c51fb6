"""The command of a test, and its duration from the seconds that the run recorded."""

import math
import shlex
from collections.abc import Mapping

from truing.doctor.hypotheses.run_history import RunHistory

PREFLIGHT = 2
"""Steps of each stage in ``truing check RECIPE``."""


def command(history: RunHistory, verb: str, *words: str) -> str:
    """Return a command on the run's recipe; "" if the recipe alone is another run."""
    if history.given_in_python:
        return ""
    return shlex.join(["truing", verb, str(history.run / "recipe.toml"), *words])


def retrain_command(history: RunHistory, *changes: str) -> str:
    """Return the command that trains the recipe with changes; for runs from Python what to do there."""
    if history.arguments is not None:
        changed = ", ".join(map(history.arguments.named, changes))
        return f"run the script again, with {changed} in {history.arguments.config}"
    same = " and ".join(f"{name}=" for name in history.given_in_python)
    again = f"truing.train again, with the same {same}, and with {' and '.join(changes)}"
    return command(history, "train", *changes) or again


def training_minutes(history: RunHistory, changed: Mapping[str, int] = {}) -> float | None:
    """Return the minutes of the whole recipe with its evaluations; None if a stage was not reached.

    Args:
        history: of a run; future steps are assumed to take as long.
        changed: steps of stages that differ from the recipe.
    """
    cfg, evaluations = history.recipe, len(history.recipe.stages) + history.recipe.eval.base
    parts = [evaluations * history.evaluation_seconds]
    for stage in cfg.stages:
        seconds = [sum(row.seconds.values()) for row in history.recorded if row.stage == stage]
        steps = changed.get(stage, cfg.stage(stage).steps)
        parts.append(steps * math.fsum(seconds) / len(seconds) if seconds else math.nan)
    return _minutes(parts)


def check_minutes(history: RunHistory) -> float | None:
    """Return the minutes of two steps of each stage, on at most as many samples as the run's first."""
    parts = []
    for stage in history.recipe.stages:
        first = [sum(row.seconds.values()) for row in history.recorded if row.stage == stage][:PREFLIGHT]
        parts.append(math.fsum(first) if first else math.nan)
    return _minutes(parts)


def evaluation_minutes(history: RunHistory, tasks: int) -> float | None:
    """Return the minutes of an evaluation on this many tasks."""
    return _minutes([history.evaluation_seconds * tasks / history.eval_tasks])


def _minutes(seconds: list[float]) -> float | None:
    total = math.fsum(seconds)
    return None if math.isnan(total) else total / 60


def duration_text(minutes: float) -> str:
    """Return a duration as text, rounded as an estimate."""
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {minutes / 60:.1f} h"
