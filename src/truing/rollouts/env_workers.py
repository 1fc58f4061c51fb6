"""Run what may hang or fail (tools, environments) in threads, each call with a time limit.

One thread answers for all worlds as long as they answer at once; where they keep it waiting, others join.
To start a thread for each call would cost more than most worlds take to answer. A thread cannot be
stopped: one that hangs is left behind as a daemon, and its episode is over, since the world may still be
changing under it.
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
"""Calls that run at one time."""

GROW_AFTER = 0.005
"""Seconds until another thread joins those that are at work."""


@dataclass
class CallResult(Generic[T]):
    """What a call gave: its value, or the traceback of what it raised, or that it did not end."""

    value: T | None = None
    error: str = ""


def run_in_workers(calls: Sequence[Callable[[], T]], timeout: float) -> list[CallResult[T]]:
    """The outcome of each call, in their order; ``timeout`` is in seconds, from a call's own beginning."""
    pool = WorkerPool(calls)
    try:
        with phase("world"):
            while len(pool.results) < len(calls):
                pause = pool.grow(timeout)
                pool.finished.wait(pause)
    finally:  # whoever interrupts this wants no further call to begin
        pool.shut_down()
    return [pool.results[place] for place in range(len(calls))]


class WorkerPool(Generic[T]):
    """The threads at work on some calls, and what has become of each."""

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self.waiting = deque(enumerate(calls))
        self.started_at: dict[int, float] = {}  # when, by place
        self.results: dict[int, CallResult[T]] = {}
        self.finished = threading.Event()  # nothing waits and nothing runs
        self._lock = threading.Lock()

    def grow(self, timeout: float) -> float:
        """Give up what is overdue, let a thread join where calls wait, and say how long to wait (seconds)."""
        with self._lock:
            now = time.monotonic()
            for place in [place for place, since in self.started_at.items() if now - since >= timeout]:
                del self.started_at[place]
                self.results[place] = CallResult(error=f"it did not end within {timeout:g} s")
            room = len(self.started_at) < MAX_WORKERS
            first_due = min(self.started_at.values(), default=now) + timeout - now
        if not self.waiting:
            return min(max(first_due, 0.0), threading.TIMEOUT_MAX)
        if room:
            threading.Thread(target=self._work, daemon=True).start()
        return GROW_AFTER

    def shut_down(self) -> None:
        """Begin no further call."""
        with self._lock:
            self.waiting.clear()

    def _work(self) -> None:
        """Make calls for as long as any wait; one that was given up meanwhile is this thread's last."""
        while (taken := self._take()) is not None:
            place, call = taken
            outcome = _call_result(call)
            if not self._finish(place, outcome):
                return

    def _take(self) -> tuple[int, Callable[[], T]] | None:
        with self._lock:
            if not self.waiting:
                return None
            place, call = self.waiting.popleft()
            self.started_at[place] = time.monotonic()
            return place, call

    def _finish(self, place: int, outcome: CallResult[T]) -> bool:
        """Keep the outcome of a call, unless it comes too late."""
        with self._lock:
            if self.started_at.pop(place, None) is None:
                return False
            self.results[place] = outcome
            if not self.started_at and not self.waiting:
                self.finished.set()
            return True


def _call_result(call: Callable[[], T]) -> CallResult[T]:
    """Make a call and say what became of it; whatever a world raises is data, not a crash.

    What it sets in its context (the precision of decimals) is gone before the next world's call.
    """
    try:
        return CallResult(value=Context().run(call))
    except BaseException:  # noqa: BLE001 — other people's worlds: in a thread, sys.exit() ends them alone
        return CallResult(error=traceback.format_exc())
