"""An environment with something of it replaced: its rewards, its tools, or how its tasks are put."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from truing.envs.base import Agentic, Env, Episode, Split
from truing.envs.tools import Tool, ToolEpisode
from truing.errors import RecipeError
from truing.rewards import Rewards
from truing.types.rollout import Task
from truing.utils.deep_copy import copied


@dataclass(frozen=True)
class _Judged:
    """An environment's tasks, judged by other functions."""

    env: Env
    rewards: Rewards

    @property
    def notes(self) -> Sequence[str]:
        """As the environment says."""
        return self.env.notes

    def tasks(self, split: Split) -> Sequence[Task]:
        """As the environment gives them."""
        return self.env.tasks(split)


@dataclass(frozen=True)
class _JudgedAgent(_Judged):
    """The same, where tasks take several turns."""

    env: Agentic

    def open(self, task: Task) -> Episode:
        """As the environment opens them."""
        return self.env.open(task)


@dataclass(frozen=True)
class _Equipped(_Judged):
    """An environment of one turn, whose tasks may be solved with tools."""

    tools: Sequence[Tool]

    def tasks(self, split: Split) -> Sequence[Task]:
        """As the environment gives them, with the tools."""
        specs = tuple(tool.spec for tool in self.tools)
        return [replace(task, tools=specs) for task in self.env.tasks(split)]

    def open(self, task: Task) -> ToolEpisode:
        """An episode in which tools are carried out until the policy speaks without a call."""
        return ToolEpisode(self.tools)


@dataclass(frozen=True)
class _Reworded(_Judged):
    """An environment's tasks, each put otherwise; they are changed once."""

    change: Callable[[Task], Task]

    @property
    def idle(self) -> Sequence[str]:
        """As the environment names them."""
        return getattr(self.env, "idle", ())

    def tasks(self, split: Split) -> Sequence[Task]:
        """As they are put here."""
        return self._changed[split]

    @cached_property
    def _changed(self) -> Mapping[Split, Sequence[Task]]:
        splits: tuple[Split, ...] = ("train", "eval")
        return {
            split: [self.change(task) for task in copied(self.env.tasks(split), "a task")] for split in splits
        }


@dataclass(frozen=True)
class _RewordedAgent(_Reworded):
    """The same, where tasks take several turns: worlds are opened for the tasks as they were."""

    env: Agentic

    def open(self, task: Task) -> Episode:
        """As the environment opens its own task."""
        return self.env.open(copied(self._own[task.task_id], f"task {task.task_id}"))

    @cached_property
    def _own(self) -> Mapping[str, Task]:
        splits: tuple[Split, ...] = ("train", "eval")
        tasks = [task for split in splits for task in self.env.tasks(split)]
        return {task.task_id: task for task in copied(tasks, "a task")}


def judged(env: Env, rewards: Rewards) -> Env:
    """The environment, judged by other functions; it stays agentic where it was."""
    return _JudgedAgent(env, rewards) if isinstance(env, Agentic) else _Judged(env, rewards)


def reworded(env: Env, change: Callable[[Task], Task]) -> Env:
    """The environment with each task's messages changed; it stays agentic where it was."""
    kind = _RewordedAgent if isinstance(env, Agentic) else _Reworded
    return kind(env, env.rewards, change)


def equipped(env: Env, tools: Sequence[Tool]) -> Agentic:
    """The environment with tools, where it has no world of its own that they would have to change."""
    if isinstance(env, Agentic):
        raise RecipeError(
            "the environment opens its own episodes, so tools= cannot be added to it",
            got=[tool.spec.name for tool in tools],
            remedy="add the tools in its open(), or give an environment without one",
        )
    return _Equipped(env, env.rewards, tools)
