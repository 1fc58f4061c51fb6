"""What is known of runs before they start: whether their data are there, their number, minutes and memory."""

import math
from collections.abc import Sequence
from contextlib import chdir
from typing import Any

from truing.config import Recipe, SftConfig
from truing.config.sections import DEFAULT_EVAL_TASKS
from truing.lab.report.numbers import minutes_text
from truing.lab.run.design import baseline_of
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Run
from truing.utils.format import with_count

MEMORY_METRIC = "memory/peak"
"""The metric of a step that has the peak memory of its process, in GB."""

ANSWER_PHASES = ("prefill", "decode", "environment", "reward")
"""The phases of a step that an evaluation has too."""


def check_data(lab: Lab) -> None:
    """Raise unless the lab's baseline has its data, and the tasks that it evaluates.

    Their paths are relative to the lab's folder.
    """
    from truing.api import check_evaluation  # imports the trainer, which the board does not need

    with chdir(lab.root):
        check_evaluation(baseline_of(lab).recipe)


def cost_text(lab: Lab, runs: int, jobs: int) -> str:
    """Return what at most ``runs`` runs of the lab cost, ``jobs`` at a time: runs, minutes and memory."""
    minutes, source = run_minutes(lab)
    steps = total_steps(baseline_of(lab).recipe)
    most = f"at most {with_count(runs, 'run')} of {with_count(steps, 'step')}"
    if math.isnan(minutes):
        time = f"minutes {source}"
    else:
        total, one = minutes_text(runs * minutes / jobs), minutes_text(minutes)
        time = f"{total} with {jobs} at a time ({one} a run, {source})"
    return f"{most}, {time}; memory of a run: {memory_text(lab)}"


def run_minutes(lab: Lab) -> tuple[float, str]:
    """Return the minutes of a run and their source: finished runs, else an exact check; NaN before both."""
    runs, checks = _finished_runs(lab), _checks(lab)
    seconds = [each.seconds for each in runs if each.seconds is not None]
    if seconds:
        source = f"measured, the mean of {with_count(len(seconds), 'run')}"
        return math.fsum(seconds) / len(seconds) / 60, source
    estimated = [each.run_seconds for each in checks if each.run_seconds is not None]
    if estimated:
        return estimated[-1] / 60, "estimated from the two steps of the check"
    return math.nan, "unknown before the first steps"


def memory_text(lab: Lab) -> str:
    """Return the memory of a run: measured by runs, else by an exact check, else what its shapes need."""
    by_runs = [each.metrics[MEMORY_METRIC] for each in _finished_runs(lab) if MEMORY_METRIC in each.metrics]
    by_checks = [each.measures[MEMORY_METRIC] for each in _checks(lab) if MEMORY_METRIC in each.measures]
    if by_runs:
        return f"{max(by_runs):.2f} GB, measured"
    if by_checks:
        return f"{max(by_checks):.2f} GB, measured in the check"
    from truing.learner.memory_prediction import predict_memory  # the board, which imports this, needs none

    with chdir(lab.root):  # the model may be a folder
        return predict_memory(baseline_of(lab).recipe).text()


def _finished_runs(lab: Lab) -> list[Run]:
    return [each for each in lab.history.entries_of(Run) if each.outcome == "finished"]


def _checks(lab: Lab) -> list[CheckResult]:
    """Return the checks of the lab's baseline."""
    digest = baseline_of(lab).digest
    return [each for each in lab.history.entries_of(CheckResult) if each.arm == digest]


def total_steps(recipe: Recipe) -> int:
    """Return the steps of all stages."""
    return sum(recipe.stage(stage).steps for stage in recipe.stages)


def estimated_run_seconds(recipe: Recipe, steps: Sequence[Any], start: float) -> float | None:
    """Return the seconds of a whole run by the last step that a check made of each stage; None without one.

    A step takes as long as its samples, and an evaluation as long as the answers of a step. What the doctor
    adds to a check is left out.

    Args:
        recipe: of the run.
        steps: the check's, each a table of a step with its samples.
        start: seconds from the start of the process to its first step.
    """
    last = {each.stage: each for each in steps}
    if last.keys() != {*recipe.stages}:
        return None
    total, answer_seconds = start, 0.0
    for stage in recipe.stages:
        step, cfg = last[stage], recipe.stage(stage)
        samples = max(1, len(step.samples))
        per_step = cfg.batch_size if isinstance(cfg, SftConfig) else cfg.prompts_per_step * cfg.group_size
        seconds = math.fsum(step.seconds.values()) - step.seconds.get("doctor", 0.0)
        total += cfg.steps * seconds * per_step / samples
        answer_seconds = max(
            answer_seconds, math.fsum(step.seconds.get(each, 0.0) for each in ANSWER_PHASES) / samples
        )
    tasks = DEFAULT_EVAL_TASKS if recipe.eval.tasks is None else recipe.eval.tasks
    within = sum(recipe.stage(each).steps // recipe.eval.every for each in recipe.stages if recipe.eval.every)
    evaluations = len(recipe.stages) + recipe.eval.base + within
    return total + evaluations * tasks * recipe.eval.samples * answer_seconds
