"""Two halves of the evaluation tasks: one chooses the best checkpoint, the other says how good it is.

The largest of several means is too high as an estimate, since it was chosen by its luck too. On tasks that
did not choose, it is not.
"""

import math
from collections.abc import Collection

from truing.analysis.estimate import Estimate
from truing.analysis.evaluation import Evaluation
from truing.analysis.intervals import interval
from truing.utils.rng import seed_of


def choosing_half(tasks: Collection[str]) -> set[str]:
    """Return the tasks that choose: half of them, at random, but always the same."""
    return set(sorted(tasks, key=lambda task: seed_of("choosing half", task))[: len(tasks) // 2])


def choosing_mean(evaluation: Evaluation) -> float:
    """Return the mean reward of the half that chooses; NaN if none of its tasks is graded."""
    rewards = _rewards(evaluation, choosing=True)
    return sum(rewards) / len(rewards) if rewards else math.nan


def reported_estimate(evaluation: Evaluation) -> Estimate:
    """Return the mean reward of the other half, with its interval."""
    return interval(_rewards(evaluation, choosing=False), evaluation.bounds)


def _rewards(evaluation: Evaluation, *, choosing: bool) -> list[float]:
    half = choosing_half(evaluation.reward.keys() | evaluation.failed.keys())
    return [reward for task, reward in evaluation.reward.items() if (task in half) is choosing]
