"""Run calls that may hang or fail (tools, environments) in threads, each with a time limit.

One thread makes all calls while they return quickly; others join if calls have to wait. A thread per call
would cost more than most calls take. A thread cannot be stopped: a hanging one stays behind as a daemon, and
its episode ends, since the call may still change it.
"""

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Generic, TypeVar

from truing.utils.phase_clock import phase

T = TypeVar("T")

MAX_WORKERS = 16
"""Calls that run at the same time."""

GROW_AFTER = 0.005
"""Seconds until another thread joins."""


@dataclass
class CallResult(Generic[T]):
    """The result of a call: its value, or an error: a traceback or a timeout."""

    value: T | None = None
    error: str = ""


def run_in_workers(calls: Sequence[Callable[[], T]], timeout: float) -> list[CallResult[T]]:
    """Return the result of each call, in their order; ``timeout`` is in seconds from the start of a call."""
    pool = WorkerPool(calls)
    try:
        with phase("world"):
            while len(pool.results) < len(calls):
                pause = pool.grow(timeout)
                pool.finished.wait(pause)
    finally:  # after an interrupt no further call starts
        pool.shut_down()
    return [pool.results[index] for index in range(len(calls))]


class WorkerPool(Generic[T]):
    """Threads that make calls, and the result of each call."""

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self.waiting = deque(enumerate(calls))
        self.started_at: dict[int, float] = {}  # seconds, by the call's index
        self.results: dict[int, CallResult[T]] = {}
        self.finished = threading.Event()  # no call waits or runs
        self._lock = threading.Lock()

    def grow(self, timeout: float) -> float:
        """Give up overdue calls, start a thread if calls wait, and return how long to wait (seconds)."""
        with self._lock:
            now = time.monotonic()
            for index in [index for index, start in self.started_at.items() if now - start >= timeout]:
                del self.started_at[index]
                self.results[index] = CallResult(error=f"no result within {timeout:g} s")
            room = len(self.started_at) < MAX_WORKERS
            first_due = min(self.started_at.values(), default=now) + timeout - now
        if not self.waiting:
            return min(max(first_due, 0.0), threading.TIMEOUT_MAX)
        if room:
            threading.Thread(target=self._work, daemon=True).start()
        return GROW_AFTER

    def shut_down(self) -> None:
        """Start no further call."""
        with self._lock:
            self.waiting.clear()

    def _work(self) -> None:
        """Make calls while any wait; stop after a call that was given up in the meantime."""
        while (item := self._take()) is not None:
            index, call = item
            if not self._finish(index, _call_result(call)):
                return

    def _take(self) -> tuple[int, Callable[[], T]] | None:
        with self._lock:
            if not self.waiting:
                return None
            index, call = self.waiting.popleft()
            self.started_at[index] = time.monotonic()
            return index, call

    def _finish(self, index: int, result: CallResult[T]) -> bool:
        """Store the result of a call and return True; False if the call was given up."""
        with self._lock:
            if self.started_at.pop(index, None) is None:
                return False
            self.results[index] = result
            if not self.started_at and not self.waiting:
                self.finished.set()
            return True


def _call_result(call: Callable[[], T]) -> CallResult[T]:
    """Make a call and return its result; an exception is a result, not a crash.

    What it sets in its context (the precision of decimals) does not reach the next call.
    """
    try:
        return CallResult(value=Context().run(call))
    except BaseException:  # noqa: BLE001 — user code: in a thread, sys.exit() ends the thread only
        return CallResult(error=traceback.format_exc())
