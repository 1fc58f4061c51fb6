"""Run calls of tools, environments and rewards that may hang or fail in threads, each with a time limit.

One thread makes all calls while they return quickly; others join if calls have to wait. A thread per call
would cost more than most calls take. A thread cannot be stopped: a hanging one stays behind as a daemon, and
its episode ends, since the call may still change it. ``processes.py`` stops what hangs.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from truing.envs.base import Env
from truing.rewards import GradeResult
from truing.rollouts.workers.calls import CallResult, EnvCall, EpisodeTable, call_result
from truing.types.rollout import Rollout
from truing.utils.phase_clock import phase

T = TypeVar("T")
U = TypeVar("U")

MAX_WORKERS = 16
"""Calls that run at the same time, unless `episode.workers` says otherwise."""

GROW_AFTER = 0.005
"""Seconds until another thread joins."""


class WorkerPool(Generic[T]):
    """Threads that make calls, and the results that were not yet taken.

    ``timeout`` is in seconds from the start of a call.
    """

    def __init__(self, timeout: float, workers: int = MAX_WORKERS) -> None:
        self.timeout, self.workers = timeout, workers
        self._waiting: deque[tuple[int, Callable[[], T]]] = deque()
        self._started_at: dict[int, float] = {}  # seconds, by the call's index
        self._results: dict[int, CallResult[T]] = {}
        self._grown_at = -GROW_AFTER
        self._lock = threading.Condition()

    @property
    def unfinished(self) -> int:
        """Calls whose result was not yet taken."""
        with self._lock:
            return len(self._waiting) + len(self._started_at) + len(self._results)

    def submit(self, index: int, call: Callable[[], T]) -> None:
        """Add a call; ``index`` names its result."""
        with self._lock:
            self._waiting.append((index, call))

    def wait(self) -> dict[int, CallResult[T]]:
        """Wait for a result, and return all that there are, by index; {} if no call is left."""
        with phase("environment"):
            while self.unfinished:
                if results := self.poll(threading.TIMEOUT_MAX):
                    return results
        return {}

    def poll(self, seconds: float = 0.0) -> dict[int, CallResult[T]]:
        """Start threads and give up overdue calls; return the results of up to ``seconds`` from now."""
        pause = self.grow()
        with self._lock:
            if not self._results and seconds:
                self._lock.wait(min(pause, seconds))
            results, self._results = self._results, {}
            return results

    def grow(self) -> float:
        """Give up overdue calls, start a thread if calls wait, and return how long to wait (seconds)."""
        with self._lock:
            now = time.monotonic()
            for index in [index for index, start in self._started_at.items() if now - start >= self.timeout]:
                del self._started_at[index]
                self._results[index] = CallResult(error=f"no result within {self.timeout:g} s")
            if not self._waiting:
                first_due = min(self._started_at.values(), default=now) + self.timeout - now
                return min(max(first_due, 0.0), threading.TIMEOUT_MAX)
            if now - self._grown_at < GROW_AFTER or len(self._started_at) >= self.workers:
                return GROW_AFTER
            self._grown_at = now
        threading.Thread(target=self._work, daemon=True).start()
        return GROW_AFTER

    def shut_down(self) -> None:
        """Start no further call."""
        with self._lock:
            self._waiting.clear()

    def _work(self) -> None:
        """Make calls while any wait; stop after a call that was given up in the meantime."""
        while (item := self._take()) is not None:
            index, call = item
            if not self._finish(index, call_result(call)):
                return

    def _take(self) -> tuple[int, Callable[[], T]] | None:
        with self._lock:
            if not self._waiting:
                return None
            index, call = self._waiting.popleft()
            self._started_at[index] = time.monotonic()
            return index, call

    def _finish(self, index: int, result: CallResult[T]) -> bool:
        """Store the result of a call and return True; False if the call was given up."""
        with self._lock:
            if self._started_at.pop(index, None) is None:
                return False
            self._results[index] = result
            self._lock.notify_all()
            return True


class ThreadWorkers:
    """Runs an environment's episodes in threads of this process, and its rewards in the calling thread."""

    def __init__(self, env: Env, timeout: float, workers: int = MAX_WORKERS) -> None:
        self._timeout, self._workers = timeout, workers
        self._table = EpisodeTable(env)
        self._ids = count(1)

    def new_episode(self) -> int:
        """Return the id of an episode to open."""
        return next(self._ids)

    def calls(self) -> "ThreadCalls":
        """Return the calls of one collection, none yet."""
        return ThreadCalls(self._table, WorkerPool(self._timeout, self._workers))

    def close_episodes(self, episodes: Iterable[int]) -> None:
        """Forget episodes."""
        for episode in episodes:
            self._table.run(EnvCall("close", episode))

    def grade(self, rollout: Rollout) -> GradeResult:
        """Return the reward of a rollout."""
        return self._table.run(EnvCall("grade", 0, rollout))

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Apply a function that grades, to one item after the other: rewards need not be thread-safe."""
        return map(function, items)

    def close(self) -> None:
        """Do nothing: threads end by themselves."""


class ThreadCalls:
    """Calls of a collection, in threads."""

    def __init__(self, table: EpisodeTable, pool: WorkerPool[Any]) -> None:
        self._table, self._pool = table, pool

    @property
    def unfinished(self) -> int:
        """Calls whose result was not yet taken."""
        return self._pool.unfinished

    def submit(self, index: int, call: EnvCall) -> None:
        """Add a call; ``index`` names its result."""
        self._pool.submit(index, partial(self._table.run, call))

    def poll(self) -> dict[int, CallResult[Any]]:
        """Return the results that there are, by index."""
        return self._pool.poll()

    def wait(self) -> dict[int, CallResult[Any]]:
        """Wait for a result, and return all that there are, by index; {} if no call is left."""
        return self._pool.wait()

    def shut_down(self) -> None:
        """Start no further call."""
        self._pool.shut_down()
