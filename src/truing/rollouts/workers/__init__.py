"""Workers: run tools, environments and reward functions, in threads or processes, each call with a timeout.

What happens when a tool hangs or crashes: docs/agents.md, "Tools that hang or crash".
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from truing.config import EpisodeConfig
from truing.envs.base import Env
from truing.rewards import GradeResult
from truing.rollouts.workers.calls import CallResult, EnvCall
from truing.rollouts.workers.env_copy import pickled
from truing.rollouts.workers.processes import ProcessWorkers
from truing.rollouts.workers.threads import ThreadWorkers
from truing.types.rollout import Rollout, Task

T = TypeVar("T")
U = TypeVar("U")

__all__ = ["CallResult", "Calls", "EnvCall", "EnvWorkers", "open_workers", "run_calls"]


class Calls(Protocol):
    """Calls of one collection of rollouts."""

    @property
    def unfinished(self) -> int:
        """Calls whose result was not yet taken."""
        ...

    def submit(self, index: int, call: EnvCall) -> None:
        """Add a call; ``index`` names its result."""
        ...

    def poll(self) -> dict[int, CallResult[Any]]:
        """Return the results that there are, by index."""
        ...

    def wait(self) -> dict[int, CallResult[Any]]:
        """Wait for a result, and return all that there are, by index; {} if no call is left."""
        ...

    def shut_down(self) -> None:
        """Start no further call."""
        ...


class EnvWorkers(Protocol):
    """Where the episodes of an environment live and its rewards run: threads or processes."""

    def new_episode(self) -> int:
        """Return the id of an episode to open."""
        ...

    def calls(self) -> Calls:
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
    return ThreadWorkers(env, limits.timeout, limits.workers)


def run_calls(workers: EnvWorkers, calls: Iterable[EnvCall]) -> list[CallResult[Any]]:
    """Run calls and return their results, in their order."""
    running, results = workers.calls(), dict[int, CallResult[Any]]()
    try:
        for index, call in enumerate(calls):
            running.submit(index, call)
        while running.unfinished:
            results |= running.wait()
    finally:  # after an interrupt no further call starts
        running.shut_down()
    return [results[index] for index in range(len(results))]
