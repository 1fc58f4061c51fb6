"""What an evaluation came to, task by task: its mean, the paired difference of two, and their intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.optimize import brentq

from truing.errors import DataError
from truing.ops.unseen import chance_above
from truing.record.estimate import Estimate
from truing.rng import generator

LEVEL = 0.95
RESAMPLES = 9999

MANY = 2_000
"""Tasks beyond which the exact interval, whose time grows with their square, gives way to the normal one."""

RESAMPLED = 20_000
"""Tasks beyond which the bootstrap gives way to the normal interval that it comes to."""

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
    """An evaluation as the record's event tells it."""
    told = {item.name: payload[item.name] for item in fields(Evaluation) if item.name != "bounds"}
    return Evaluation(**told, bounds=read_bounds(payload))


def read_bounds(payload: Mapping[str, Any]) -> tuple[float, float] | None:
    """What a task can earn, as an event tells it; one of an earlier version does not say."""
    earned = payload["reward"].values()
    match payload.get("bounds"):
        case [int() | float() as least, int() | float() as most] if earned:
            holds = least - CLOSE <= min(earned) and max(earned) <= most + CLOSE  # false of NaN, too
            return (least, most) if holds and math.isfinite(most - least) else None
        case _:
            return None


def bounded(values: Sequence[float], bounds: tuple[float, float], samples: int | None) -> Estimate:
    """A mean with its interval, of numbers that all lie within these bounds; the source is at the formula.

    It has a width also where all are equal: after 200 tasks that earned 0, 1.8 % of others may earn 1.
    """
    if len(values) > MANY:
        return _bounded_many(values, bounds, samples)
    tail = (1 - LEVEL) / 2
    low, high = (_mean_at([*values, end], share) for end, share in zip(bounds, (1 - tail, tail), strict=True))
    return Estimate(float(np.mean(values)), low, high, len(values), samples)


def _bounded_many(values: Sequence[float], bounds: tuple[float, float], samples: int | None) -> Estimate:
    """The same by the normal distribution, and never narrower than if all were equal: the rule of three."""
    mean, count = float(np.mean(values)), len(values)
    half = float(stats.norm.ppf((1 + LEVEL) / 2) * np.std(values) / math.sqrt(count))
    unseen = 1 - ((1 - LEVEL) / 2) ** (1 / count)
    low = min(mean - half, mean - unseen * (mean - bounds[0]))
    high = max(mean + half, mean + unseen * (bounds[1] - mean))
    return Estimate(mean, max(low, bounds[0]), min(high, bounds[1]), count, samples)


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
    if len(data) > RESAMPLED:
        half = float(stats.norm.ppf((1 + LEVEL) / 2) * data.std() / math.sqrt(len(data)))
        return Estimate(
            float(data.mean()), float(data.mean()) - half, float(data.mean()) + half, len(data), None
        )
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
