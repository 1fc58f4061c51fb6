"""What graders returned for each rollout, beside the rewards that are stored."""

from collections.abc import Callable, Iterable

from truing.rewards import GradeResult
from truing.types.rollout import Rollout


class GradeLog:
    """Grades rollouts, and remembers each result until it is taken; threads may grade beside each other."""

    def __init__(self, grade: Callable[[Rollout], GradeResult]) -> None:
        self._grade = grade
        self._results: dict[str, GradeResult] = {}

    def grade(self, rollout: Rollout) -> GradeResult:
        """Return the reward of a rollout."""
        result = self._grade(rollout)
        self._results[rollout.rollout_id] = result
        return result

    def take(self, rollout_ids: Iterable[str]) -> dict[str, GradeResult]:
        """Return and forget the results of rollouts, by id; without those that were not graded here."""
        return {name: self._results.pop(name) for name in rollout_ids if name in self._results}
