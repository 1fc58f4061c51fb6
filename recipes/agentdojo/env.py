"""The user tasks of AgentDojo (https://arxiv.org/abs/2406.13352), without its injections."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from truing.config import FrozenModel
from truing.envs.base import Split
from truing.envs.data.split import group_split
from truing.envs.optional_packages import import_optional
from truing.rewards import Rewards
from truing.types.rollout import Rollout, Task

if TYPE_CHECKING:
    from .suite import OfficeEpisode, Suite

SuiteName = Literal["workspace", "slack", "travel", "banking"]


class AgentDojoConfig(FrozenModel):
    """The suites, and the split of their tasks."""

    suites: Annotated[tuple[SuiteName, ...], Field(min_length=1)] = (
        "workspace",
        "slack",
        "travel",
        "banking",
    )
    """Suites of the package `agentdojo`, version v1.2.2."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of groups of related tasks for evaluation: those whose SHA-256, in [0, 1), is below it."""
    seed: int = 0
    """Another seed selects other tasks for evaluation."""


class AgentDojo:
    """Tasks in four offices, each graded by its published check."""

    Config = AgentDojoConfig

    def __init__(self, config: AgentDojoConfig) -> None:
        self.rewards: Rewards = {"solved": (solved, 1.0)}
        self._suites = {name: _suite(name) for name in dict.fromkeys(config.suites)}
        tasks = [task for suite in self._suites.values() for task in suite.tasks()]
        needs = [_needs(task) for task in tasks]
        self._tasks = group_split(
            tasks, lambda i, j: needs[i] <= needs[j] or needs[j] <= needs[i], config.eval_share, config.seed
        )
        self.idle = tuple(task.task_id for task in tasks if self.open(task).solved())
        """Tasks solved without any action, by their published checks."""
        free = f"solved without any action: {', '.join(self.idle)}"
        self.notes: Sequence[str] = (free,) if self.idle else ()

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, suite by suite."""
        return self._tasks[split]

    def open(self, task: Task) -> "OfficeEpisode":
        """Return a new copy of the suite's office."""
        return self._suites[task.answer["suite"]].open(task.answer["task"])


def solved(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the task's published check passes."""
    return float(rollout.outcome["solved"])


def _needs(task: Task) -> set[str]:
    """Return the reference calls: tasks are similar if one's calls include the other's."""
    assert isinstance(task.demonstration, tuple)
    suite = task.answer["suite"]
    return {f"{suite} {call}" for turn in task.demonstration for call in turn.calls}


def _suite(name: SuiteName) -> "Suite":
    """Return a suite of the optional package."""
    import_optional("agentdojo", "agentdojo")
    from .suite import Suite

    return Suite(name)
