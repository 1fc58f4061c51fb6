"""A fixed, paired evaluation: the same tasks and the same random numbers each time."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.optimize import brentq

from truing.errors import DataError, RolloutError
from truing.ops.unseen import chance_above
from truing.outcomes import Status
from truing.record.estimate import Estimate
from truing.rewards import Rewards, reach
from truing.rng import generator
from truing.types import RolloutGroup

LEVEL = 0.95
RESAMPLES = 9999

CLOSE = 1e-9
"""Rewards that differ by less are the same: sums of weights round."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation saw, by task id: the mean reward, and the answers.

    A task of which every attempt failed has no reward, and is named in ``failed`` with its first error.
    """

    name: str
    reward: Mapping[str, float]
    parts: Mapping[str, float]  # mean of each reward component
    answers: Mapping[str, Sequence[str]]  # what was said last to each task
    failed: Mapping[str, str]
    bounds: tuple[float, float] | None  # the least and the most that a task can earn; None is not known

    def estimate(self) -> Estimate:
        """Mean reward over tasks.

        Where nobody knows what a task can earn, and all earned the same, nothing says how far it may be off.
        """
        values = list(self.reward.values())
        samples = max(map(len, self.answers.values()), default=None)
        if self.bounds is not None:
            return bounded(values, self.bounds, samples)
        if _same(values):
            return Estimate(float(np.mean(values)), math.nan, math.nan, len(values), samples)
        return replace(bootstrap(values, "mean"), samples=samples)

    def gain_over(self, before: "Evaluation") -> Estimate:
        """Mean of the paired differences, task by task.

        Where all tasks gained the same, what they can earn bounds what others may gain.
        """
        asked, asked_before = (e.reward.keys() | e.failed.keys() for e in (self, before))
        if asked != asked_before:
            raise DataError(
                f"{self.name} and {before.name} were evaluated on different tasks",
                got=sorted(asked ^ asked_before)[:3],
                expected="the same tasks, to compare one by one",
            )
        judged = [task for task in self.reward if task in before.reward]
        gains = [self.reward[task] - before.reward[task] for task in judged]
        if self.bounds is None or before.bounds is None or not _same(gains):
            return bootstrap(gains, "gain")
        (least, most), (least_before, most_before) = self.bounds, before.bounds
        return bounded(gains, (least - most_before, most - least_before), None)


def read_evaluation(payload: Mapping[str, Any]) -> Evaluation:
    """An evaluation as the record's event tells it; an earlier version did not say what a task can earn."""
    told = {item.name: payload[item.name] for item in fields(Evaluation) if item.name != "bounds"}
    bounds = payload.get("bounds")
    return Evaluation(**told, bounds=None if bounds is None else (bounds[0], bounds[1]))


def bounded(values: Sequence[float], bounds: tuple[float, float], samples: int | None) -> Estimate:
    """A mean with its interval, of numbers that all lie within these bounds; the source is at the formula.

    It has a width also where all are equal: after 200 tasks that earned 0, 1.8 % of others may earn 1.
    """
    tail = (1 - LEVEL) / 2
    low, high = (_mean_at([*values, end], share) for end, share in zip(bounds, (1 - tail, tail), strict=True))
    return Estimate(float(np.mean(values)), low, high, len(values), samples)


def _mean_at(points: Sequence[float], share: float) -> float:
    """The mean that is passed in this share of draws."""
    point_E, least, most = torch.tensor(points, dtype=torch.float64), min(points), max(points)
    if least == most:
        return least
    found = brentq(lambda mean: chance_above(point_E, mean) - share, least, most, xtol=1e-7 * (most - least))
    return float(found)


def _same(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= CLOSE


def bootstrap(values: Sequence[float], key: str) -> Estimate:
    """Percentile bootstrap over tasks; the same values and key give the same interval.

    Source: Efron & Tibshirani, An Introduction to the Bootstrap, ch. 13; computed by scipy.
    """
    data = np.asarray(values, dtype=float)
    interval = stats.bootstrap(
        (data,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=generator("bootstrap", key),
        batch=999,
    ).confidence_interval
    return Estimate(float(data.mean()), float(interval.low), float(interval.high), len(data), None)


def evaluate(name: str, rewards: Rewards, draw: Callable[[], Sequence[RolloutGroup]]) -> Evaluation:
    """Draw and average by task; ``draw`` gives one group per task, judged by these rewards."""
    groups = draw()
    graded = {g.task.task_id: [r for r in g.rollouts if r.status is not Status.ERROR] for g in groups}
    judged = {task: rollouts for task, rollouts in graded.items() if rollouts}
    failed = {g.task.task_id: g.rollouts[0].error for g in groups if not graded[g.task.task_id]}
    if len(judged) < 2:
        raise RolloutError(
            f"{name} cannot be evaluated: nearly every attempt failed", got=next(iter(failed.values()))
        )
    everyone = [rollout for rollouts in judged.values() for rollout in rollouts]
    names = everyone[0].reward_parts
    return Evaluation(
        name,
        reward={task: float(np.mean([r.reward for r in rollouts])) for task, rollouts in judged.items()},
        parts={part: float(np.mean([r.reward_parts[part] for r in everyone])) for part in names},
        answers={g.task.task_id: [r.text for r in g.rollouts] for g in groups},
        failed=failed,
        bounds=_bounds(rewards, [rollout.reward for rollout in everyone]),
    )


def _bounds(rewards: Rewards, seen: Sequence[float]) -> tuple[float, float] | None:
    """The least and the most that can be earned; None where more, or less, was: a part may be of any size."""
    least, most = reach(rewards)
    within = least - CLOSE <= min(seen) and max(seen) <= most + CLOSE
    return (least, most) if within else None
