"""What a test would be typed as, and how long it would take by the seconds that the run itself recorded."""

import math
import shlex
from collections.abc import Mapping

from truing.doctor.hypotheses.run_history import RunHistory

PREFLIGHT = 2
"""Updates of each stage that ``truing check RECIPE`` makes."""


def command(story: RunHistory, verb: str, *words: str) -> str:
    """A command on the run's recipe, as one types it; "" where the recipe alone names no tasks."""
    if "name" not in story.recipe.env:
        return ""
    return shlex.join(["truing", verb, str(story.run / "recipe.toml"), *words])


def retrain_command(story: RunHistory, *changes: str) -> str:
    """The recipe trained again with some keys changed; in words where that is done from Python."""
    return command(story, "train", *changes) or f"truing.train again, with {' and '.join(changes)}"


def training_minutes(story: RunHistory, changed: Mapping[str, int] = {}) -> float | None:
    """A run of the whole recipe, its evaluations too; None where a stage was not reached.

    Args:
        story: of a run, whose updates take as long as those to come.
        changed: steps of stages that have others than the recipe says.
    """
    cfg, evaluations = story.recipe, len(story.recipe.stages) + story.recipe.eval.base
    parts = [evaluations * story.evaluation_seconds]
    for stage in cfg.stages:
        seconds = [sum(row.seconds.values()) for row in story.recorded if row.stage == stage]
        steps = changed.get(stage, cfg.stage(stage).steps)
        parts.append(steps * math.fsum(seconds) / len(seconds) if seconds else math.nan)
    return _minutes(parts)


def check_minutes(story: RunHistory) -> float | None:
    """Two updates of each stage, on no more rows than the run's first had."""
    parts = []
    for stage in story.recipe.stages:
        first = [sum(row.seconds.values()) for row in story.recorded if row.stage == stage][:PREFLIGHT]
        parts.append(math.fsum(first) if first else math.nan)
    return _minutes(parts)


def evaluation_minutes(story: RunHistory, tasks: int) -> float | None:
    """An evaluation on so many tasks."""
    return _minutes([story.evaluation_seconds * tasks / story.recipe.eval.tasks])


def _minutes(seconds: list[float]) -> float | None:
    total = math.fsum(seconds)
    return None if math.isnan(total) else total / 60


def duration_text(minutes: float) -> str:
    """A length of time, rounded as a guess is."""
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {minutes / 60:.1f} h"
