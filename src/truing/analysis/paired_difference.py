"""Which of two runs is better, by how much and how sure: their evaluations of one name, task by task."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truing.analysis.current_events import current_evaluations
from truing.analysis.estimate import Estimate, read_estimate
from truing.analysis.evaluation import Evaluation, read_evaluation
from truing.analysis.incremental_reader import IncrementalReader
from truing.analysis.intervals import is_significant, supposed
from truing.analysis.valid_events import NUMBER_TYPES
from truing.errors import DataError

MIN_DIFFERING_TASKS = 6
"""Tasks that have to differ before one run is called better: five all go one way by chance 1 time in 16."""

MAX_MID_STAGE = 8
"""Evaluations in the middle of stages that are compared, the last ones: an interval takes its time."""

MEANS_ONLY = "no interval: the means alone are on record, and not the tasks"


@dataclass(frozen=True)
class Gain:
    """An evaluation that both runs have: what each came to, and second − first."""

    name: str
    first: Estimate
    second: Estimate
    difference: float | None  # paired, or of the means where these alone are on record
    paired: Estimate | None  # the same with its interval over tasks
    up: int  # tasks on which the second earns more
    down: int
    says: str  # in words; where nothing is paired, why


def paired_gains(first: IncrementalReader, second: IncrementalReader) -> tuple[Gain, ...]:
    """Every evaluation that both have, in the order of the first; in the middle of stages the last alone."""
    told = [current_evaluations(run.events) for run in (first, second)]
    shared = [name for name in told[0] if name in told[1]]
    left = set([name for name in shared if "@" in name][:-MAX_MID_STAGE])
    rewards = [run.run_value("judged", "rewards") for run in (first, second)]
    otherwise = "" if rewards[0] == rewards[1] else "not compared: they were graded by other rewards"
    found = [_gains(told[0][name], told[1][name], otherwise) for name in shared if name not in left]
    return tuple(gain for each in found for gain in each)


def _gains(first: Mapping[str, Any], second: Mapping[str, Any], otherwise: str) -> Iterator[Gain]:
    """Second − first: task by task where both were judged on the same tasks, by the same rewards."""
    name, estimates = first["name"], [read_estimate(each) for each in (first, second)]
    judged = [_evaluation_of(each) for each in (first, second)]
    why_not = otherwise or _why_unpaired(*judged)
    if why_not:
        difference = estimates[1].mean - estimates[0].mean
        difference = difference if why_not == MEANS_ONLY and math.isfinite(difference) else None
        yield Gain(name, *estimates, difference, None, 0, 0, why_not)
        return
    before, after = (each for each in judged if each is not None)
    yield _gain(name, estimates, after.gain_over(before), after.task_gains(before))
    for k, paired in after.pass_at_gains(before).items():
        both = [each.pass_at()[k] for each in (before, after)]
        yield _gain(f"{name} pass@{k}", both, paired, after.task_pass_at_gains(before, k))


def _gain(name: str, both: Sequence[Estimate], paired: Estimate, apart: Mapping[str, float]) -> Gain:
    up, down = sum(each > 0 for each in apart.values()), sum(each < 0 for each in apart.values())
    return Gain(name, *both, paired.mean, paired, up, down, _conclusion(paired, list(apart.values())))


def _evaluation_of(payload: Mapping[str, Any]) -> Evaluation | None:
    """An evaluation by task; None where the record does not tell tasks."""
    reward, failed = payload.get("reward"), payload.get("failed")
    if not (
        isinstance(reward, dict) and isinstance(failed, dict) and all(map(_is_finite_number, reward.values()))
    ):
        return None
    found = read_evaluation(payload | {"parts": {}, "answers": {}})
    earned, passes_at = payload.get("earned"), payload.get("passes_at")
    known = isinstance(earned, dict) and all(
        isinstance(each, list) and all(map(_is_finite_number, each)) for each in earned.values()
    )
    return found if known and _is_finite_number(passes_at) else replace(found, earned={}, passes_at=None)


def _is_finite_number(value: object) -> bool:
    return isinstance(value, NUMBER_TYPES) and math.isfinite(value)


def _why_unpaired(first: Evaluation | None, second: Evaluation | None) -> str:
    """Why there is no paired difference; "" where there is one."""
    if first is None or second is None:
        return MEANS_ONLY
    try:
        judged = second.task_gains(first)
    except DataError:
        return "not compared: they were not asked the same tasks"
    return "" if len(judged) > 1 else "not compared: fewer than two tasks were judged in both"


def _conclusion(paired: Estimate, apart: Sequence[float]) -> str:
    """What the interval comes to."""
    differ = sum(each != 0 for each in apart)
    if not differ:
        return "the same on every task"
    if differ < MIN_DIFFERING_TASKS:
        return "too few tasks differ to tell"
    if not is_significant(paired, apart):
        return "no difference that these tasks can tell"
    return f"the {'second' if paired.mean > 0 else 'first'} is better{supposed(paired)}"


def seed_note(first: IncrementalReader, second: IncrementalReader) -> str:
    """What seeds mean for a difference: it may be theirs, and of others it says nothing."""
    told = [run.run_value("recipe", "seed") for run in (first, second)]
    if told[0] != told[1]:
        return (
            f"seeds {told[0]} and {told[1]}: the difference may be theirs alone; truing lab compares several"
        )
    return (
        f"both runs have seed {told[0]}: one pair says nothing about other seeds; truing lab compares several"
    )


def gain_lines(found: Sequence[Gain], seed_note: str) -> Iterator[tuple[str, str]]:
    """Every line with its style."""
    if found:
        yield f"second − first, task by task, 95 % over tasks, each line by itself ({seed_note}):", "bold"
    for each in found:
        amount = "–" if each.difference is None else f"{each.difference:+.3f}"
        if each.paired:
            over = f"over {each.paired.tasks} tasks, up on {each.up}, down on {each.down}"
            amount = f"{each.paired.signed} {over}"
        yield f"  {each.name:<32} {amount}: {each.says}", ""
