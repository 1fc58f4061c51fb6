"""What an evaluation came to, task by task: its mean, the paired difference of two, and their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy import stats

from truing.errors import DataError
from truing.rng import generator

LEVEL = 0.95
RESAMPLES = 9999


@dataclass(frozen=True)
class Estimate:
    """A mean over tasks with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    tasks: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


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

    def estimate(self) -> Estimate:
        """Mean reward over tasks."""
        return bootstrap(list(self.reward.values()), "mean")

    def gain_over(self, before: "Evaluation") -> Estimate:
        """Mean of the paired differences, task by task."""
        asked, asked_before = (e.reward.keys() | e.failed.keys() for e in (self, before))
        if asked != asked_before:
            raise DataError(
                f"{self.name} and {before.name} were evaluated on different tasks",
                got=sorted(asked ^ asked_before)[:3],
                expected="the same tasks, to compare one by one",
            )
        judged = [task for task in self.reward if task in before.reward]
        return bootstrap([self.reward[task] - before.reward[task] for task in judged], "gain")


def read_evaluation(payload: Mapping[str, Any]) -> Evaluation:
    """An evaluation as the record's event tells it."""
    return Evaluation(**{item.name: payload[item.name] for item in fields(Evaluation)})


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
    return Estimate(float(data.mean()), float(interval.low), float(interval.high), len(data))
