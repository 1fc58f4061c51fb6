"""What graders returned for each rollout, beside the rewards that are stored."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from truing.rewards import GradeResult
from truing.types.rollout import Rollout


class Grading(NamedTuple):
    """What a grader was given, and what it returned."""

    task_id: str
    text: str
    result: GradeResult


class GradeLog:
    """Grades rollouts, and remembers each grading until it is taken; threads may grade beside each other."""

    def __init__(self, grade: Callable[[Rollout], GradeResult]) -> None:
        self._grade = grade
        self._gradings: dict[str, Grading] = {}

    def grade(self, rollout: Rollout) -> GradeResult:
        """Return the reward of a rollout."""
        result = self._grade(rollout)
        self._gradings[rollout.rollout_id] = Grading(rollout.task.task_id, rollout.text, result)
        return result

    def take(self, rollout_ids: Iterable[str]) -> dict[str, Grading]:
        """Return and forget the gradings of rollouts, by id; without those that were not graded here."""
        return {name: self._gradings.pop(name) for name in rollout_ids if name in self._gradings}
