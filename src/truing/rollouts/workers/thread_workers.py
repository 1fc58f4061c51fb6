"""Run calls of tools, environments and rewards that may hang or fail in threads, each with a time limit.

One thread makes all calls while they return quickly; others join if calls have to wait. A thread per call
would cost more than most calls take. The thread of an overdue call gets an exception, which ends loops. One
that waits stays behind as a daemon, and its episode ends, since the call may still change it. One that blocks
the interpreter, and a reward that waits, end the run after MAX_TIMEOUTS limits. ``process_workers.py`` stops
what hangs.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from truing.envs.base import Env
from truing.errors import RewardError
from truing.rewards import GradeResult
from truing.rollouts.workers.calls import CallResult, EnvCall, EpisodeTable, call_result
from truing.types.rollout import Rollout
from truing.utils import watchdog
from truing.utils.phase_clock import phase
from truing.utils.time_limit import GRACE, TimeLimitExceeded, raise_in_thread, time_limit

T = TypeVar("T")
U = TypeVar("U")

MAX_WORKERS = 16
"""Calls that run at the same time, unless `episode.workers` says otherwise."""

GROW_AFTER = 0.005
"""Seconds until another thread joins."""

MAX_TIMEOUTS = 10.0
"""Time limits of a call for which the run waits where only its end would stop the call."""

REMEDY = (
    "set episode.processes = true, which ends only what hangs; a slow reward needs a larger episode.timeout"
)


class _Started(NamedTuple):
    """A call that runs."""

    at: float  # monotonic seconds
    thread: int
    watched: int  # key of the watchdog


class WorkerPool(Generic[T]):
    """Threads that make calls, and the results that were not yet taken.

    ``timeout`` is in seconds from the start of a call.
    """

    def __init__(self, timeout: float, workers: int = MAX_WORKERS) -> None:
        self.timeout, self.workers = timeout, workers
        self._waiting: deque[tuple[int, Callable[[], T], str]] = deque()
        self._started: dict[int, _Started] = {}  # by the call's index
        self._results: dict[int, CallResult[T]] = {}
        self._grown_at = -GROW_AFTER
        self._mutex = threading.Lock()  # of C: an exception between its steps would leave it locked
        self._lock = threading.Condition(self._mutex)

    @property
    def unfinished(self) -> int:
        """Calls whose result was not yet taken."""
        with self._lock:
            return len(self._waiting) + len(self._started) + len(self._results)

    def submit(self, index: int, call: Callable[[], T], name: str = "a call") -> None:
        """Add a call; ``index`` names its result, ``name`` the call in errors."""
        with self._lock:
            self._waiting.append((index, call, name))

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
            for index, call in list(self._started.items()):
                if now - call.at >= self.timeout:
                    self._give_up(index)
            if not self._waiting:
                first_due = (
                    min((call.at for call in self._started.values()), default=now) + self.timeout - now
                )
                return min(max(first_due, 0.0), threading.TIMEOUT_MAX)
            if now - self._grown_at < GROW_AFTER or len(self._started) >= self.workers:
                return GROW_AFTER
            self._grown_at = now
        threading.Thread(target=self._work, daemon=True).start()
        return GROW_AFTER

    def shut_down(self) -> None:
        """Start no further call."""
        with self._lock:
            self._waiting.clear()

    def _give_up(self, index: int) -> None:
        """Store a timeout as the result of a call, and end its thread if that is possible."""
        call = self._started.pop(index)
        watchdog.end(call.watched)
        raise_in_thread(call.thread, SystemExit)
        self._results[index] = CallResult(error=f"no result within {self.timeout:g} s")

    def _work(self) -> None:
        """Make calls while any wait; stop after a call that was given up in the meantime."""
        while (item := self._take()) is not None:
            index, call = item
            if not self._finish(index, call_result(call)):
                return

    def _take(self) -> tuple[int, Callable[[], T]] | None:
        with self._lock:
            # a busy machine may start more threads before the first of them is here
            if not self._waiting or len(self._started) >= self.workers:
                return None
            index, call, name = self._waiting.popleft()
            watched = watchdog.begin(name, MAX_TIMEOUTS * self.timeout, REMEDY)
            self._started[index] = _Started(time.monotonic(), threading.get_ident(), watched)
            return index, call

    def _finish(self, index: int, result: CallResult[T]) -> bool:
        """Store the result of a call and return True; False if the call was given up."""
        with self._mutex:
            if (call := self._started.pop(index, None)) is None:
                return False
            watchdog.end(call.watched)
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
        """Return the reward of a rollout.

        Raises:
            RewardError: It takes one time limit less than MAX_TIMEOUTS, after which the process is ended.
        """
        call, grace = EnvCall("grade", 0, rollout), min(self._timeout, GRACE)
        seconds = MAX_TIMEOUTS * self._timeout - grace
        try:
            with time_limit(seconds, str(call), REMEDY, grace):
                return self._table.run(call)
        except TimeLimitExceeded as error:
            raise RewardError(
                f"{call} does not return", got=f"nothing within {seconds:g} s", remedy=REMEDY
            ) from error

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
        self._pool.submit(index, partial(self._table.run, call), str(call))

    def poll(self) -> dict[int, CallResult[Any]]:
        """Return the results that there are, by index."""
        return self._pool.poll()

    def wait(self) -> dict[int, CallResult[Any]]:
        """Wait for a result, and return all that there are, by index; {} if no call is left."""
        return self._pool.wait()

    def shut_down(self) -> None:
        """Start no further call."""
        self._pool.shut_down()
