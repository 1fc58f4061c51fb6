"""An environment with something of it replaced: its rewards, its tools, or how its tasks are put."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from truing.envs.base import Env, Episode, MultiTurnEnv, Split
from truing.envs.tools import Tool, ToolEpisode
from truing.errors import RecipeError
from truing.rewards import Rewards
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy


@dataclass(frozen=True)
class _WithRewards:
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
class _MultiTurnWithRewards(_WithRewards):
    """The same, where tasks take several turns."""

    env: MultiTurnEnv

    def open(self, task: Task) -> Episode:
        """As the environment opens them."""
        return self.env.open(task)


@dataclass(frozen=True)
class _WithTools(_WithRewards):
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
class _WithChangedTasks(_WithRewards):
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
            split: [self.change(task) for task in deep_copy(self.env.tasks(split), "a task")]
            for split in splits
        }


@dataclass(frozen=True)
class _MultiTurnWithChangedTasks(_WithChangedTasks):
    """The same, where tasks take several turns: worlds are opened for the tasks as they were."""

    env: MultiTurnEnv

    def open(self, task: Task) -> Episode:
        """As the environment opens its own task."""
        return self.env.open(deep_copy(self._own[task.task_id], f"task {task.task_id}"))

    @cached_property
    def _own(self) -> Mapping[str, Task]:
        splits: tuple[Split, ...] = ("train", "eval")
        tasks = [task for split in splits for task in self.env.tasks(split)]
        return {task.task_id: task for task in deep_copy(tasks, "a task")}


def with_rewards(env: Env, rewards: Rewards) -> Env:
    """The environment, judged by other functions; it stays agentic where it was."""
    return (
        _MultiTurnWithRewards(env, rewards) if isinstance(env, MultiTurnEnv) else _WithRewards(env, rewards)
    )


def with_changed_tasks(env: Env, change: Callable[[Task], Task]) -> Env:
    """The environment with each task's messages changed; it stays agentic where it was."""
    kind = _MultiTurnWithChangedTasks if isinstance(env, MultiTurnEnv) else _WithChangedTasks
    return kind(env, env.rewards, change)


def with_tools(env: Env, tools: Sequence[Tool]) -> MultiTurnEnv:
    """The environment with tools, where it has no world of its own that they would have to change."""
    if isinstance(env, MultiTurnEnv):
        raise RecipeError(
            "the environment opens its own episodes, so tools= cannot be added to it",
            got=[tool.spec.name for tool in tools],
            remedy="add the tools in its open(), or give an environment without one",
        )
    return _WithTools(env, env.rewards, tools)
