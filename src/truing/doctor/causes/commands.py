"""The command of a test, and its duration from the seconds that the run recorded."""

import math
import shlex
from collections.abc import Mapping

from truing.analysis.evaluate_command import evaluation_of
from truing.doctor.causes.cause import Advice
from truing.doctor.causes.history import History

PREFLIGHT = 2
"""Steps of each stage in ``truing check RECIPE``."""


def train_again(history: History, changes: Mapping[str, object], words: str) -> Advice:
    """Return the test that trains with changes of the recipe; of a log, which has none, it is in words."""
    if history.run is None:
        return Advice(f"train again {words}")
    named = tuple(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in changes.items()
    )
    steps = {
        stage: int(str(changes[f"{stage}.steps"]))
        for stage in history.run.recipe.stages
        if f"{stage}.steps" in changes
    }
    return Advice(_train_command(history, *named), training_minutes(history, steps), named)


def larger_groups(history: History) -> Advice:
    """Return the test with groups of eight rollouts."""
    return train_again(history, {f"{history.stage}.group_size": 8}, "with eight rollouts in a group")


def check_recipe(history: History) -> Advice:
    """Return the test of the environment: what demonstrations earn, and what tools answer."""
    if history.run is None:
        return Advice("grade a right answer with the reward function")
    if given := history.run.given_in_python:
        same = ", ".join(f"{name}=…" for name in given)
        return Advice(f'print(truing.check("{history.source / "recipe.toml"}", {same}))', 0.0)
    return Advice(command(history, "check", "--static"), 0.0)


def look(history: History) -> Advice:
    """Return the command that shows rollouts, with their rewards."""
    if history.run is None:
        return Advice("read some rollouts beside their rewards")
    return Advice(shlex.join(["truing", "tokens", str(history.source)]), 0.0)


def evaluate_again(history: History, tasks: int, *changes: str) -> Advice:
    """Return the test that compares the policy with the one before the stage, on a number of tasks."""
    facts = history.facts
    assert facts.recipe.eval.tasks is not None
    if facts.given_in_python or history.stage != facts.recipe.stages[0] or facts.begins:
        other = f", with {' and '.join(changes)}" if changes else ""
        return Advice(f"evaluate the policy before the stage and after it on {tasks} tasks{other}")
    seconds = 2 * facts.evaluation_seconds * tasks / facts.recipe.eval.tasks
    both = evaluation_of(history.source, facts.recipe, (), f"eval.tasks={tasks}", *changes)
    start = shlex.join(["--against", str(history.source / "recipe.toml")])
    return Advice(f"{both} {start}", _minutes([seconds]))


def command(history: History, verb: str, *words: str) -> str:
    """Return a command on the run's recipe; "" if the recipe alone is another run."""
    if history.run is None or history.run.given_in_python:
        return ""
    return shlex.join(["truing", verb, str(history.source / "recipe.toml"), *words])


def _train_command(history: History, *changes: str) -> str:
    """Return the command that trains the recipe with changes; for runs from Python what to do there."""
    facts = history.facts
    if facts.arguments is not None:
        changed = ", ".join(map(facts.arguments.named, changes))
        return f"run the script again, with {changed} in {facts.arguments.config}"
    same = " and ".join(f"{name}=" for name in facts.given_in_python)
    again = f"truing.train again, with the same {same}, and with {' and '.join(changes)}"
    return command(history, "train", *changes) or again


def training_minutes(history: History, changed: Mapping[str, int] = {}) -> float | None:
    """Return the minutes of the whole recipe with its evaluations; None if a stage was not reached.

    Args:
        history: of a run; future steps are assumed to take as long.
        changed: steps of stages that differ from the recipe.
    """
    cfg = history.facts.recipe
    parts = [(len(cfg.stages) + cfg.eval.base) * history.facts.evaluation_seconds]
    for stage in cfg.stages:
        seconds = [sum(row.seconds.values()) for row in history.facts.recorded if row.stage == stage]
        steps = changed.get(stage, cfg.stage(stage).steps)
        parts.append(steps * math.fsum(seconds) / len(seconds) if seconds else math.nan)
    return _minutes(parts)


def check_minutes(history: History) -> float | None:
    """Return the minutes of two steps of each stage, on at most as many samples as the run's first."""
    parts = []
    for stage in history.facts.recipe.stages:
        rows = [row for row in history.facts.recorded if row.stage == stage]
        first = [sum(row.seconds.values()) for row in rows][:PREFLIGHT]
        parts.append(math.fsum(first) if first else math.nan)
    return _minutes(parts)


def _minutes(seconds: list[float]) -> float | None:
    total = math.fsum(seconds)
    return None if math.isnan(total) else total / 60


def duration_text(minutes: float) -> str:
    """Return a duration as text, rounded as an estimate."""
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {minutes / 60:.1f} h"
