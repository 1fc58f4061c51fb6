"""Paired differences of the evaluations that two runs share, with intervals over tasks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truing.analysis.current_events import current_evaluations
from truing.analysis.estimate import Estimate, read_estimate
from truing.analysis.evaluation import Evaluation, read_evaluation
from truing.analysis.incremental_reader import IncrementalReader
from truing.analysis.intervals import assumption_text, is_significant
from truing.errors import DataError

MIN_DIFFERING_TASKS = 6
"""Minimum of differing tasks for a conclusion: five all go one way by chance 1 time in 16."""

MAX_MID_STAGE = 8
"""Maximum of compared evaluations within stages (the last ones): intervals take time."""

MEANS_ONLY = "no interval: only means are recorded, not tasks"


@dataclass(frozen=True)
class Gain:
    """An evaluation that both runs have: both results, and second − first."""

    name: str
    first: Estimate
    second: Estimate
    difference: float | None  # paired, or of the means if only these are recorded
    paired: Estimate | None  # the same with its interval over tasks
    up: int  # tasks with a higher reward in the second
    down: int
    says: str  # the conclusion, or why nothing is paired


def paired_gains(first: IncrementalReader, second: IncrementalReader) -> tuple[Gain, ...]:
    """Return the gain of each shared evaluation in order; within stages only the last ones."""
    evaluations = [current_evaluations(run.events) for run in (first, second)]
    shared = [name for name in evaluations[0] if name in evaluations[1]]
    skipped = set([name for name in shared if "@" in name][:-MAX_MID_STAGE])
    rewards = [run.run_value("judged", "rewards") for run in (first, second)]
    other_rewards = "" if rewards[0] == rewards[1] else "not compared: different reward functions"
    gains = [
        _gains(evaluations[0][name], evaluations[1][name], other_rewards)
        for name in shared
        if name not in skipped
    ]
    return tuple(gain for group in gains for gain in group)


def _gains(first: Mapping[str, Any], second: Mapping[str, Any], other_rewards: str) -> Iterator[Gain]:
    """Yield second − first, paired by task if both have the same tasks and reward functions."""
    name, estimates = first["name"], (read_estimate(first), read_estimate(second))
    evaluations = [_evaluation_of(each) for each in (first, second)]
    reason = other_rewards or _unpaired_reason(*evaluations)
    if reason:
        difference = estimates[1].mean - estimates[0].mean
        difference = difference if reason == MEANS_ONLY and math.isfinite(difference) else None
        yield Gain(name, *estimates, difference, None, 0, 0, reason)
        return
    before, after = (each for each in evaluations if each is not None)
    yield _gain(name, estimates, after.gain_over(before), after.task_gains(before))
    for k, paired in after.pass_at_gains(before).items():
        pass_at_k = (before.pass_at()[k], after.pass_at()[k])
        yield _gain(f"{name} pass@{k}", pass_at_k, paired, after.task_pass_at_gains(before, k))


def _gain(
    name: str, estimates: tuple[Estimate, Estimate], paired: Estimate, differences: Mapping[str, float]
) -> Gain:
    values = list(differences.values())
    up, down = sum(value > 0 for value in values), sum(value < 0 for value in values)
    return Gain(name, *estimates, paired.mean, paired, up, down, _conclusion(paired, values))


def _evaluation_of(payload: Mapping[str, Any]) -> Evaluation | None:
    """Return the evaluation per task; None if tasks are not recorded."""
    reward, failed = payload.get("reward"), payload.get("failed")
    if not (
        isinstance(reward, dict) and isinstance(failed, dict) and all(map(_is_finite_number, reward.values()))
    ):
        return None
    evaluation = read_evaluation({**payload, "parts": {}, "answers": {}})
    earned, passes_at = payload.get("earned"), payload.get("passes_at")
    has_rewards = isinstance(earned, dict) and all(
        isinstance(rewards, list) and all(map(_is_finite_number, rewards)) for rewards in earned.values()
    )
    return (
        evaluation
        if has_rewards and _is_finite_number(passes_at)
        else replace(evaluation, earned={}, passes_at=None)
    )


def _is_finite_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _unpaired_reason(first: Evaluation | None, second: Evaluation | None) -> str:
    """Return why there is no paired difference; "" if there is one."""
    if first is None or second is None:
        return MEANS_ONLY
    try:
        gains = second.task_gains(first)
    except DataError:
        return "not compared: different tasks"
    return "" if len(gains) > 1 else "not compared: fewer than two tasks are graded in both"


def _conclusion(paired: Estimate, differences: Sequence[float]) -> str:
    """Return the conclusion of the interval."""
    differ = sum(value != 0 for value in differences)
    if not differ:
        return "the same on every task"
    if differ < MIN_DIFFERING_TASKS:
        return "too few tasks differ to tell"
    if not is_significant(paired, differences):
        return "no difference that these tasks can tell"
    return f"the {'second' if paired.mean > 0 else 'first'} is better{assumption_text(paired)}"


def seed_note(first: IncrementalReader, second: IncrementalReader) -> str:
    """Return a note about the seeds of two runs: one pair does not generalize over seeds."""
    seeds = [run.run_value("recipe", "seed") for run in (first, second)]
    if None in seeds:
        note = "the seeds are not known"
    elif seeds[0] == seeds[1]:
        note = f"both runs have seed {seeds[0]}: one pair does not generalize to other seeds"
    else:
        note = f"seeds {seeds[0]} and {seeds[1]}: the difference may come from the seeds"
    return f"{note}; truing lab compares several"


def gain_lines(gains: Sequence[Gain], seed_note: str) -> Iterator[tuple[str, str]]:
    """Yield each line with its style."""
    if gains:
        yield (
            f"second − first, paired by task, 95 % interval over tasks, each line separately ({seed_note}):",
            "bold",
        )
    for gain in gains:
        amount = "–" if gain.difference is None else f"{gain.difference:+.3f}"
        if gain.paired:
            counts = f"over {gain.paired.tasks} tasks, up on {gain.up}, down on {gain.down}"
            amount = f"{gain.paired.signed} {counts}"
        yield f"  {gain.name:<32} {amount}: {gain.says}", ""
