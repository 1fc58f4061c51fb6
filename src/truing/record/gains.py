"""Which of two runs is better, by how much and how sure: their evaluations of one name, task by task."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truing.record.estimate import Estimate, read_estimate
from truing.record.evaluation import Evaluation, read_bounds
from truing.record.followed import Followed
from truing.record.sound import NUMBER
from truing.record.told import evaluations_told

FEWEST = 6
"""Tasks that have to differ before one run is called better: five all go one way by chance 1 time in 16."""

MIDWAY = 8
"""Evaluations in the middle of stages that are compared, the last ones: an interval takes its time."""

ALONE = "no interval: the means alone are on record, and not the tasks"


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


def gains(first: Followed, second: Followed) -> tuple[Gain, ...]:
    """Every evaluation that both have, in the order of the first; in the middle of stages the last alone."""
    told = [evaluations_told(run.events) for run in (first, second)]
    shared = [name for name in told[0] if name in told[1]]
    left = set([name for name in shared if "@" in name][:-MIDWAY])
    rewards = [run.fact("judged", "rewards") for run in (first, second)]
    otherwise = "" if rewards[0] == rewards[1] else "not compared: they were graded by other rewards"
    return tuple(_gain(told[0][name], told[1][name], otherwise) for name in shared if name not in left)


def _gain(first: Mapping[str, Any], second: Mapping[str, Any], otherwise: str) -> Gain:
    """Second − first: task by task where both were judged on the same tasks, by the same rewards."""
    name, estimates = first["name"], [read_estimate(each["estimate"]) for each in (first, second)]
    paired = otherwise or _paired(*map(_judged, (first, second)))
    if isinstance(paired, str):
        difference = estimates[1].mean - estimates[0].mean
        difference = difference if paired == ALONE and math.isfinite(difference) else None
        return Gain(name, *estimates, difference, None, 0, 0, paired)
    shared = first["reward"].keys() & second["reward"].keys()
    apart = [second["reward"][task] - first["reward"][task] for task in shared]
    up, down = sum(each > 0 for each in apart), sum(each < 0 for each in apart)
    return Gain(name, *estimates, paired.mean, paired, up, down, _says(paired, up + down))


def _judged(payload: Mapping[str, Any]) -> Evaluation | None:
    """An evaluation by task; None where the record does not tell tasks."""
    reward, failed = payload.get("reward"), payload.get("failed")
    if not (isinstance(reward, dict) and isinstance(failed, dict)):
        return None
    known = all(isinstance(each, NUMBER) and math.isfinite(each) for each in reward.values())
    return Evaluation(payload["name"], reward, {}, {}, failed, read_bounds(payload)) if known else None


def _paired(first: Evaluation | None, second: Evaluation | None) -> Estimate | str:
    """The paired difference, or why there is none."""
    if first is None or second is None:
        return ALONE
    asked = [each.reward.keys() | each.failed.keys() for each in (first, second)]
    if asked[0] != asked[1]:
        return "not compared: they were not asked the same tasks"
    if len(first.reward.keys() & second.reward.keys()) < 2:
        return "not compared: fewer than two tasks were judged in both"
    return second.gain_over(first)


def _says(paired: Estimate, differ: int) -> str:
    """What the interval comes to."""
    if not differ:
        return "the same on every task"
    if differ < FEWEST:
        return "too few tasks differ to tell"
    if paired.low > 0:
        return "the second is better"
    return "the first is better" if paired.high < 0 else "no difference that these tasks can tell"


def seeds(first: Followed, second: Followed) -> str:
    """What seeds mean for a difference: it may be theirs, and of others it says nothing."""
    told = [run.fact("recipe", "seed") for run in (first, second)]
    if told[0] != told[1]:
        return (
            f"seeds {told[0]} and {told[1]}: the difference may be theirs alone; truing lab compares several"
        )
    return (
        f"both runs have seed {told[0]}: one pair says nothing about other seeds; truing lab compares several"
    )


def lines(found: Sequence[Gain], seeds: str) -> Iterator[tuple[str, str]]:
    """Every line with its style."""
    if found:
        yield f"second − first, task by task, 95 % over tasks ({seeds}):", "bold"
    for each in found:
        amount = "–" if each.difference is None else f"{each.difference:+.3f}"
        if each.paired:
            ends = f"[{each.paired.low:+.3f}, {each.paired.high:+.3f}] over {each.paired.tasks} tasks"
            amount = f"{amount} {ends}, up on {each.up}, down on {each.down}"
        yield f"  {each.name:<32} {amount}: {each.says}", ""
