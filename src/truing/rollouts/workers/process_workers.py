"""Run episodes and rewards in processes (``episode.processes``): a call that hangs or crashes ends one only.

An episode lives in one process for its whole life. Threads cannot do this: a thread that hangs stays, and a
crash ends the run.
"""

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from truing.envs.base import Env
from truing.envs.wrappers import original_env, original_task
from truing.errors import RecipeError, RewardCrash
from truing.rewards import GradeResult
from truing.rollouts.workers.calls import CallResult, EnvCall
from truing.rollouts.workers.env_copy import THREADS, env_copy
from truing.rollouts.workers.process_main import ProcessSetting, reward_names
from truing.rollouts.workers.worker_process import ProcessEnded, WorkerProcess
from truing.types.rollout import Rollout
from truing.utils.phase_clock import phase

T = TypeVar("T")
U = TypeVar("U")


class ProcessWorkers:
    """Processes with an environment each; all but the first start when they are first needed."""

    def __init__(self, env: Env, timeout: float, workers: int, memory: int | None = None) -> None:
        """Start one process.

        Raises:
            RecipeError: The environment cannot be sent to a process, or made in one.
        """
        self._env, self._ids = env, count(1)
        name = type(original_env(env)).__qualname__
        setting = ProcessSetting(
            env_copy(env), reward_names(env), dict(os.environ), list(sys.path), timeout, memory
        )
        self._processes = [WorkerProcess(setting, name) for _ in range(workers)]
        self._end = weakref.finalize(self, _stop_all, self._processes)  # also at the end of the program
        try:
            self._processes[0].start()
        except ProcessEnded as error:
            self.close()
            raise RecipeError(
                "episode.processes = true, but no process starts",
                got=error,
                expected="a module from which a process can import the environment",
                remedy='in a script, begin the main part with: if __name__ == "__main__":; '
                f"define classes in a module, not in a notebook; or {THREADS}",
            ) from error

    def new_episode(self) -> int:
        """Return the id of an episode to open."""
        return next(self._ids)

    def calls(self) -> "ProcessCalls":
        """Return the calls of one collection, none yet."""
        return ProcessCalls(self._submit)

    def close_episodes(self, episodes: Iterable[int]) -> None:
        """Forget episodes."""
        for episode in episodes:
            self._submit(EnvCall("close", episode))

    def grade(self, rollout: Rollout) -> GradeResult:
        """Return the reward of a rollout.

        Raises:
            RewardCrash: A reward function hung, or crashed its process.
        """
        result = self._submit(EnvCall("grade", self.new_episode(), rollout)).result()
        if result.raised is not None:
            raise result.raised
        if result.value is None:
            raise RewardCrash(f"grading task {rollout.task.task_id!r} failed: {result.error}")
        return result.value

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Apply a function that grades to several items at the same time; results are in order."""
        threads = ThreadPoolExecutor(len(self._processes), "grading")
        try:
            yield from threads.map(function, items)
        finally:  # after an interrupt nothing further is graded
            threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End all processes, and what their calls started."""
        self._end()

    def _submit(self, call: EnvCall) -> Future[CallResult[Any]]:
        """Run a call in the process of its episode."""
        if call.kind == "open":
            call = replace(call, argument=original_task(self._env, call.argument))
        return self._processes[call.episode % len(self._processes)].submit(call)


class ProcessCalls:
    """Calls of a collection, in processes."""

    def __init__(self, submit: Callable[[EnvCall], Future[CallResult[Any]]]) -> None:
        self._submit = submit
        self._indices: dict[Future[CallResult[Any]], int] = {}

    @property
    def unfinished(self) -> int:
        """Calls whose result was not yet taken."""
        return len(self._indices)

    def submit(self, index: int, call: EnvCall) -> None:
        """Add a call; ``index`` names its result."""
        self._indices[self._submit(call)] = index

    def poll(self) -> dict[int, CallResult[Any]]:
        """Return the results that there are, by index."""
        return self._take([future for future in self._indices if future.done()])

    def wait(self) -> dict[int, CallResult[Any]]:
        """Wait for a result, and return all that there are, by index; {} if no call is left."""
        with phase("environment"):
            done, _ = wait(self._indices, return_when=FIRST_COMPLETED)
        return self._take(done)

    def shut_down(self) -> None:
        """Start no further call."""
        for future in self._indices:
            future.cancel()

    def _take(self, done: Iterable[Future[CallResult[Any]]]) -> dict[int, CallResult[Any]]:
        return {self._indices.pop(future): future.result() for future in done}


def _stop_all(processes: Sequence[WorkerProcess]) -> None:
    """Stop processes."""
    for process in processes:
        process.stop()
