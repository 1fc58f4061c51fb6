"""Workers: run tools, environments and reward functions, in threads or processes, each call with a timeout.

What happens when a tool hangs or crashes: docs/agents.md, "Tools that hang or crash".
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from truing.config import EpisodeConfig
from truing.envs.base import Env
from truing.rewards import GradeResult
from truing.rollouts.workers.calls import CallResult, EnvCall, Pool, run_all
from truing.rollouts.workers.env_copy import pickled
from truing.rollouts.workers.process_workers import ProcessWorkers
from truing.rollouts.workers.thread_workers import ThreadWorkers
from truing.types.rollout import Rollout, Task
from truing.utils import watchdog

T = TypeVar("T")
U = TypeVar("U")

__all__ = ["CallResult", "EnvCall", "EnvWorkers", "open_workers", "run_calls"]


class EnvWorkers(Protocol):
    """Where the episodes of an environment live and its rewards run: threads or processes."""

    def new_episode(self) -> int:
        """Return the id of an episode to open."""
        ...

    def calls(self) -> Pool[EnvCall]:
        """Return the calls of one collection, none yet."""
        ...

    def close_episodes(self, episodes: Iterable[int]) -> None:
        """Forget episodes."""
        ...

    def grade(self, rollout: Rollout) -> GradeResult:
        """Return the reward of a rollout."""
        ...

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Apply a function that grades to each item; results are in order."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


def open_workers(env: Env, limits: EpisodeConfig, tasks: Iterable[Task] = ()) -> EnvWorkers:
    """Return the workers that a recipe asks for; ``tasks`` are those of the run.

    Raises:
        RecipeError: The environment cannot live in a process, or a task cannot be sent to one.
    """
    if limits.processes:
        for task in tasks:
            pickled(task, f"task {task.task_id!r}")
        return ProcessWorkers(env, limits.timeout, limits.workers, limits.process_memory_bytes)
    watchdog.start()
    return ThreadWorkers(env, limits.timeout, limits.workers)


def run_calls(workers: EnvWorkers, calls: Iterable[EnvCall]) -> list[CallResult[Any]]:
    """Run calls and return their results, in their order."""
    return run_all(workers.calls(), calls)
