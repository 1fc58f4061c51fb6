"""Results of an evaluation per task: mean, pass@k, and paired differences of two evaluations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from truing.analysis.estimate import Estimate
from truing.analysis.intervals import REWARD_TOLERANCE, Bounds, bounded_interval, interval
from truing.errors import DataError
from truing.ops.pass_at_k import pass_at_k


@dataclass(frozen=True)
class Evaluation:
    """Results by task id: the mean reward and the answers.

    A task whose rollouts all failed has no reward; ``failed`` names it with its first error.
    """

    name: str
    reward: Mapping[str, float]
    parts: Mapping[str, float]  # mean of each reward component
    answers: Mapping[str, Sequence[str]]  # the final text of each rollout
    failed: Mapping[str, str]
    bounds: Bounds | None  # minimum and maximum reward of a task; None if unknown
    earned: Mapping[str, Sequence[float]] = field(  # the reward of each graded answer
        default_factory=dict[str, Sequence[float]]
    )
    passes_at: float | None = None  # the reward from which an answer passes; None if unknown
    second: Mapping[str, Sequence[float]] = field(  # the second grader's reward of each graded answer
        default_factory=dict[str, Sequence[float]]
    )
    stage: str = ""  # of the run that made it, after ``step`` steps; "" of an evaluation outside of a run
    step: int = 0

    def estimate(self) -> Estimate:
        """Return the mean reward over tasks.

        With unknown bounds, the interval assumes normal rewards.
        """
        samples = max(map(len, self.answers.values()), default=None)
        return interval(list(self.reward.values()), self.bounds, samples)

    def gain_over(self, before: "Evaluation") -> Estimate:
        """Return the mean of the paired differences over tasks, bounded by the differences of the bounds."""
        bounds = None
        if self.bounds is not None and before.bounds is not None:
            bounds = self.bounds[0] - before.bounds[1], self.bounds[1] - before.bounds[0]
        return interval(list(self.task_gains(before).values()), bounds)

    def task_gains(self, before: "Evaluation") -> dict[str, float]:
        """Return the reward difference of each task that is graded in both."""
        tasks, tasks_before = (e.reward.keys() | e.failed.keys() for e in (self, before))
        if tasks != tasks_before:
            raise DataError(
                f"{self.name} and {before.name} were evaluated on different tasks",
                got=sorted(tasks ^ tasks_before)[:3],
                expected="the same tasks, to compare one by one",
            )
        return {
            task: self.reward[task] - before.reward[task] for task in self.reward if task in before.reward
        }

    def by_second_grader(self) -> "Evaluation | None":
        """Return the same by the rewards of the second grader; None without one."""
        means = {task: float(np.mean(rewards)) for task, rewards in self.second.items() if rewards}
        if not means:
            return None
        inside = min(means.values()) >= 0 and max(means.values()) <= 1
        return replace(
            self, reward=means, earned=self.second, bounds=(0.0, 1.0) if inside else None, second={}
        )

    @property
    def pass_at_ks(self) -> list[int]:
        """The k of pass@k, up to the answers of each graded task; empty for single answers."""
        counts = [len(self.earned[task]) for task in self.reward if task in self.earned]
        complete = self.passes_at is not None and len(counts) == len(self.reward) > 0
        return ks_up_to(min(counts)) if complete else []

    def task_pass_at(self, k: int) -> dict[str, float]:
        """Return pass@k of each task."""
        assert self.passes_at is not None
        pass_reward = self.passes_at - REWARD_TOLERANCE
        counts = {
            task: (len(self.earned[task]), sum(reward >= pass_reward for reward in self.earned[task]))
            for task in self.reward
        }
        return {task: pass_at_k(answers, passes, k) for task, (answers, passes) in counts.items()}

    def pass_at(self) -> dict[int, Estimate]:
        """Return the mean of pass@k over tasks, by k."""
        samples = max(map(len, self.earned.values()), default=None)
        return {
            k: bounded_interval(list(self.task_pass_at(k).values()), (0.0, 1.0), samples)
            for k in self.pass_at_ks
        }

    def pass_at_gains(self, before: "Evaluation") -> dict[int, Estimate]:
        """Return the mean paired difference of pass@k, for each shared k."""
        shared = [k for k in self.pass_at_ks if k in before.pass_at_ks]
        return {
            k: bounded_interval(list(self.task_pass_at_gains(before, k).values()), (-1.0, 1.0))
            for k in shared
        }

    def task_pass_at_gains(self, before: "Evaluation", k: int) -> dict[str, float]:
        """Return the difference of pass@k of each task that is graded in both."""
        after_k, before_k = self.task_pass_at(k), before.task_pass_at(k)
        return {task: after_k[task] - before_k[task] for task in self.task_gains(before)}


def read_evaluation(payload: Mapping[str, Any]) -> Evaluation:
    """Return the evaluation of an event; earlier versions lack some fields."""
    names = {item.name for item in fields(Evaluation)} - {"bounds"}
    values = {name: payload[name] for name in names if name in payload}
    absent: dict[str, Any] = {"parts": {}, "answers": {}, "failed": {}}
    return Evaluation(**absent | values, bounds=read_bounds(payload))


def read_bounds(payload: Mapping[str, Any]) -> Bounds | None:
    """Return the reward bounds of an event; None if they are missing or wrong."""
    rewards = payload["reward"].values()
    match payload.get("bounds"):
        case [int() | float() as low, int() | float() as high] if rewards:
            consistent = (
                low - REWARD_TOLERANCE <= min(rewards) and max(rewards) <= high + REWARD_TOLERANCE
            )  # false of NaN, too
            return (low, high) if consistent and math.isfinite(high - low) else None
        case _:
            return None


def ks_up_to(answers: int) -> list[int]:
    """Return the k of pass@k: powers of two up to ``answers``, and ``answers``."""
    return sorted({2**i for i in range(answers.bit_length())} | {answers}) if answers > 1 else []
