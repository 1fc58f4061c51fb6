"""Wrappers that replace an environment's rewards, tools or tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from truing.envs.base import Env, Episode, MultiTurnEnv, Split
from truing.envs.program_env import Access, CallRules, ProgramEnv
from truing.envs.tools import Tool, ToolEpisode
from truing.errors import RecipeError
from truing.rewards import Rewards
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy

SPLITS: tuple[Split, ...] = ("train", "eval")


@dataclass(frozen=True)
class _WithRewards:
    """An environment with other reward functions."""

    env: Env
    rewards: Rewards

    @property
    def notes(self) -> Sequence[str]:
        """The environment's notes."""
        return self.env.notes

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the environment's tasks."""
        return self.env.tasks(split)


@dataclass(frozen=True)
class _MultiTurnWithRewards(_WithRewards):
    """The same for multi-turn environments."""

    env: MultiTurnEnv

    def open(self, task: Task) -> Episode:
        """Return the environment's episode."""
        return self.env.open(task)


@dataclass(frozen=True)
class _ProgramWithRewards(_WithRewards):
    """The same for programs."""

    env: ProgramEnv

    @property
    def at_once(self) -> int:
        """How many programs run at the same time."""
        return self.env.at_once

    @property
    def calls(self) -> CallRules:
        """The rules of the programs' calls."""
        return self.env.calls

    def run(self, task: Task, access: Access, name: str) -> Mapping[str, Any]:
        """Run the environment's program."""
        return self.env.run(task, access, name)

    def begin_collection(self, kept: int = 2) -> None:
        """Remove what the programs of earlier collections left behind."""
        self.env.begin_collection(kept)

    def stop(self) -> None:
        """End all programs that run."""
        self.env.stop()


@dataclass(frozen=True)
class _WithTools(_WithRewards):
    """A single-turn environment with added tools."""

    tools: Sequence[Tool]

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the environment's tasks with the tools."""
        specs = tuple(tool.spec for tool in self.tools)
        return [replace(task, tools=specs) for task in self.env.tasks(split)]

    def open(self, task: Task) -> ToolEpisode:
        """Return an episode that executes tools until a turn without a call."""
        return ToolEpisode(self.tools)


@dataclass(frozen=True)
class _MultiTurnWithTools(_WithTools):
    """An environment with tools of its own, and added ones."""

    env: MultiTurnEnv

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the environment's tasks with all tools."""
        specs = tuple(tool.spec for tool in self.tools)
        return [replace(task, tools=(*task.tools, *specs)) for task in self.env.tasks(split)]

    def open(self, task: Task) -> ToolEpisode:
        """Return the environment's episode, opened for its own task, with the added tools."""
        added = {tool.spec.name: tool for tool in self.tools}
        own = replace(task, tools=tuple(spec for spec in task.tools if spec.name not in added))
        episode = self.env.open(own)
        if not isinstance(episode, ToolEpisode):
            raise RecipeError(
                "the environment answers calls itself, so tools= cannot be added to it",
                got=f"an episode of type {type(episode).__name__}, and the tools {', '.join(added)}",
                expected="an environment of single turns, or one whose open() returns a truing.ToolEpisode",
                remedy="leave out tools=, or let open() return a ToolEpisode",
            )
        episode.tools |= added
        return episode


@dataclass(frozen=True)
class _WithChangedTasks(_WithRewards):
    """An environment with changed tasks; each is changed once."""

    change: Callable[[Task], Task]

    @property
    def idle(self) -> Sequence[str]:
        """The environment's idle tasks."""
        return getattr(self.env, "idle", ())

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the changed tasks."""
        return self._changed[split]

    @cached_property
    def _changed(self) -> Mapping[Split, Sequence[Task]]:
        return {
            split: [self.change(task) for task in deep_copy(self.env.tasks(split), "a task")]
            for split in SPLITS
        }


@dataclass(frozen=True)
class _MultiTurnWithChangedTasks(_WithChangedTasks):
    """The same for multi-turn environments; episodes open for the unchanged tasks."""

    env: MultiTurnEnv

    def open(self, task: Task) -> Episode:
        """Return the environment's episode for the unchanged task."""
        return self.env.open(deep_copy(self.own_task(task), f"task {task.task_id}"))

    def own_task(self, task: Task) -> Task:
        """Return a task before its change."""
        return self._own[task.task_id]

    @cached_property
    def _own(self) -> Mapping[str, Task]:
        tasks = [task for split in SPLITS for task in self.env.tasks(split)]
        return {task.task_id: task for task in deep_copy(tasks, "a task")}


@dataclass(frozen=True)
class _ProgramWithChangedTasks(_WithChangedTasks, _ProgramWithRewards):
    """The same for programs, which get the changed tasks."""

    env: ProgramEnv


def with_rewards(env: Env, rewards: Rewards) -> Env:
    """Return the environment with other reward functions; it stays multi-turn, or one of programs."""
    if isinstance(env, ProgramEnv):
        return _ProgramWithRewards(env, rewards)
    if isinstance(env, MultiTurnEnv):
        return _MultiTurnWithRewards(env, rewards)
    return _WithRewards(env, rewards)


def given_in_python(env: Env) -> list[str]:
    """Return what a caller gave beside the recipe's environment: ``rewards``, ``tools``."""
    given = []
    while isinstance(env, _WithRewards):
        if isinstance(env, _WithTools):
            given.append("tools")
        elif not isinstance(env, _WithChangedTasks):
            given.append("rewards")
        env = env.env
    return sorted(given)


def with_changed_tasks(env: Env, change: Callable[[Task], Task]) -> Env:
    """Return the environment with each task's messages changed; it stays multi-turn, or one of programs."""
    if isinstance(env, ProgramEnv):
        return _ProgramWithChangedTasks(env, env.rewards, change)
    if isinstance(env, MultiTurnEnv):
        return _MultiTurnWithChangedTasks(env, env.rewards, change)
    return _WithChangedTasks(env, env.rewards, change)


def with_tools(env: Env, tools: Sequence[Tool]) -> MultiTurnEnv:
    """Return an environment with added tools, beside those that it has.

    Raises:
        RecipeError: Two tools have one name, or the environment's episodes cannot take another one.
    """
    if isinstance(env, ProgramEnv):
        raise RecipeError(
            "tools= cannot be added to programs",
            got=", ".join(tool.spec.name for tool in tools),
            expected="tools that the program itself sends with its calls, and runs",
            remedy="leave out tools=",
        )
    has_own = isinstance(env, MultiTurnEnv)  # else the tools that rows list are these functions
    own = {spec.name for split in SPLITS for task in env.tasks(split) for spec in task.tools if has_own}
    names = [tool.spec.name for tool in tools]
    if twins := sorted({name for name in names if name in own or names.count(name) > 1}):
        raise RecipeError(
            "two tools have one name",
            got=", ".join(twins),
            expected=f"other names than those of the environment's tools: {', '.join(sorted(own)) or 'none'}",
            remedy="rename the function that tools= gets",
        )
    if not isinstance(env, MultiTurnEnv):
        return _WithTools(env, env.rewards, tools)
    joined = _MultiTurnWithTools(env, env.rewards, tools)
    for task in joined.tasks("train")[:1]:  # an episode that takes no tools is an error before the run
        joined.open(deep_copy(task, f"task {task.task_id}"))
    return joined


def original_env(env: Env) -> Env:
    """Return the environment without a change of its tasks, which needs what no other process has."""
    return original_env(env.env) if isinstance(env, _WithChangedTasks) else env


def original_task(env: Env, task: Task) -> Task:
    """Return a task of ``env`` as ``original_env(env)`` has it."""
    if isinstance(env, _MultiTurnWithChangedTasks):
        return original_task(env.env, env.own_task(task))
    return task
