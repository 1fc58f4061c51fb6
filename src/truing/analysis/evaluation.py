"""What an evaluation came to, task by task: its mean, pass@k, and the paired differences of two."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from truing.analysis.estimate import Estimate
from truing.analysis.intervals import REWARD_TOLERANCE, Bounds, bounded_interval, interval
from truing.errors import DataError
from truing.ops.pass_at_k import pass_at_k


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
    bounds: Bounds | None  # the least and the most that a task can earn; None is not known
    earned: Mapping[str, Sequence[float]] = field(  # the reward of each answer that was judged
        default_factory=dict[str, Sequence[float]]
    )
    passes_at: float | None = None  # the reward from which on an answer passes; None is not known

    def estimate(self) -> Estimate:
        """Mean reward over tasks.

        Where nobody knows what a task can earn, its interval supposes normal rewards.
        """
        samples = max(map(len, self.answers.values()), default=None)
        return interval(list(self.reward.values()), self.bounds, samples)

    def gain_over(self, before: "Evaluation") -> Estimate:
        """Mean of the paired differences, task by task: they lie between the differences of the bounds."""
        bounds = None
        if self.bounds is not None and before.bounds is not None:
            bounds = self.bounds[0] - before.bounds[1], self.bounds[1] - before.bounds[0]
        return interval(list(self.task_gains(before).values()), bounds)

    def task_gains(self, before: "Evaluation") -> dict[str, float]:
        """How much more each task earned, of those that were judged in both."""
        asked, asked_before = (e.reward.keys() | e.failed.keys() for e in (self, before))
        if asked != asked_before:
            raise DataError(
                f"{self.name} and {before.name} were evaluated on different tasks",
                got=sorted(asked ^ asked_before)[:3],
                expected="the same tasks, to compare one by one",
            )
        return {
            task: self.reward[task] - before.reward[task] for task in self.reward if task in before.reward
        }

    @property
    def pass_at_ks(self) -> list[int]:
        """Of how many answers pass@k is told: no more than each judged task has; none of single answers."""
        counts = [len(self.earned[task]) for task in self.reward if task in self.earned]
        whole = self.passes_at is not None and len(counts) == len(self.reward) > 0
        return ks_up_to(min(counts)) if whole else []

    def task_pass_at(self, k: int) -> dict[str, float]:
        """pass@k of each task."""
        assert self.passes_at is not None
        least = self.passes_at - REWARD_TOLERANCE
        counts = {
            task: (len(self.earned[task]), sum(each >= least for each in self.earned[task]))
            for task in self.reward
        }
        return {task: pass_at_k(answers, passed, k) for task, (answers, passed) in counts.items()}

    def pass_at(self) -> dict[int, Estimate]:
        """The mean of pass@k over tasks, by k."""
        samples = max(map(len, self.earned.values()), default=None)
        return {
            k: bounded_interval(list(self.task_pass_at(k).values()), (0.0, 1.0), samples)
            for k in self.pass_at_ks
        }

    def pass_at_gains(self, before: "Evaluation") -> dict[int, Estimate]:
        """Mean of the paired differences of pass@k, for each k that both have."""
        shared = [k for k in self.pass_at_ks if k in before.pass_at_ks]
        return {
            k: bounded_interval(list(self.task_pass_at_gains(before, k).values()), (-1.0, 1.0))
            for k in shared
        }

    def task_pass_at_gains(self, before: "Evaluation", k: int) -> dict[str, float]:
        """How much more likely one of k answers to each task passes, of those that were judged in both."""
        now, then = self.task_pass_at(k), before.task_pass_at(k)
        return {task: now[task] - then[task] for task in self.task_gains(before)}


def read_evaluation(payload: Mapping[str, Any]) -> Evaluation:
    """An evaluation as the record's event tells it; one of an earlier version does not tell all."""
    told = {item.name: payload[item.name] for item in fields(Evaluation) if item.name in payload}
    return Evaluation(**(told | {"bounds": read_bounds(payload)}))


def read_bounds(payload: Mapping[str, Any]) -> Bounds | None:
    """What a task can earn, as an event tells it; one of an earlier version does not say."""
    earned = payload["reward"].values()
    match payload.get("bounds"):
        case [int() | float() as least, int() | float() as most] if earned:
            holds = (
                least - REWARD_TOLERANCE <= min(earned) and max(earned) <= most + REWARD_TOLERANCE
            )  # false of NaN, too
            return (least, most) if holds and math.isfinite(most - least) else None
        case _:
            return None


def ks_up_to(answers: int) -> list[int]:
    """The k of which pass@k is told: powers of two up to the answers to a task, and their number."""
    return sorted({2**i for i in range(answers.bit_length())} | {answers}) if answers > 1 else []
