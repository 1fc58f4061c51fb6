"""The results of a finished run for the ledger, enough to judge it without its directory."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.analysis.evaluation import Evaluation
from truing.analysis.train_result import evaluations_of
from truing.config import resolve
from truing.errors import LabError
from truing.record import RunReader, StepLine

LAST_DIVISOR = 4
"""Metrics of a run are means over its last stage's last quarter."""


def run_measures(run: Path) -> dict[str, Any]:
    """Return metrics, rewards by task around the last stage, rewards by step, and a hash of the tasks."""
    reader = RunReader(run)
    recipe = resolve(reader.run_fact("recipe"))
    stage = recipe.stages[-1]
    evaluations = evaluations_of(reader.events())
    evaluation = evaluations.get(f"after_{stage}")
    if evaluation is None:
        raise LabError(f"{run} has no evaluation after {stage}", expected="a run that finished")
    earlier = [evaluations.get(name) for name in ("base", *(f"after_{each}" for each in recipe.stages[:-1]))]
    before = next(filter(None, reversed(earlier)), None)
    steps = [row for row in reader.steps() if row.stage == stage]
    curve = [row.metrics.get("reward/mean", math.nan) for row in steps]
    return {
        "metrics": {**_last_quarter_means(steps), **_evaluation_metrics(evaluation)},
        "tasks": dict(evaluation.reward),
        "before": dict(before.reward) if before else {},
        "bounds": evaluation.bounds,
        "curve": curve,
        "prompts": reader.run_fact("judged", "tasks_hash"),
    }


def _evaluation_metrics(evaluation: Evaluation) -> Mapping[str, float]:
    parts = {f"eval/{name}": value for name, value in evaluation.parts.items() if name != "reward"}
    return {**parts, "eval/reward": evaluation.estimate().mean}


def _last_quarter_means(steps: Sequence[StepLine]) -> Mapping[str, float]:
    """Return the mean of each metric over the last quarter's steps that have it."""
    last = steps[-max(1, len(steps) // LAST_DIVISOR) :]
    names = {name for row in last for name in row.metrics}
    values_by_name = {
        name: [row.metrics[name] for row in last if name in row.metrics] for name in sorted(names)
    }
    return {name: math.fsum(values) / len(values) for name, values in values_by_name.items()}
