"""A time limit for Python code of others in this process: it ends by an exception.

The exception reaches code at its next instruction, so loops and generators end. A call that waits (``sleep``,
a socket) ends when it returns; one that blocks the interpreter never does: ``watchdog.py`` ends the process.
"""

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from truing.utils import watchdog

GRACE = 10.0
"""Seconds beyond a limit until the watchdog ends the process."""


class TimeLimitExceeded(BaseException):
    """The code under a time limit ran longer; no ``except Exception`` of that code hides it."""


def raise_in_thread(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread, by its identity, at its next instruction; None takes it back."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )


@contextmanager
def time_limit(seconds: float, what: str, remedy: str = "", grace: float = GRACE) -> Iterator[None]:
    """Run code with a time limit.

    Args:
        seconds: of real time.
        what: runs, by name.
        remedy: for an error of the watchdog, if even the exception does not end it.
        grace: seconds beyond the limit until the watchdog ends the process.

    Raises:
        TimeLimitExceeded: in the code, after that time.
    """
    timer = _timer()
    with watchdog.watched(what, seconds + grace, remedy):
        key = timer.start(seconds)
        try:
            yield
        finally:
            timer.stop(key)


class _Timer:
    """A thread that raises TimeLimitExceeded in others."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._running: dict[int, tuple[float, int]] = {}  # key → (end in monotonic seconds, thread)
        self._late: set[int] = set()
        self._next = 0
        self._wakes_at = float("inf")
        threading.Thread(target=self._watch, name="truing-time-limits", daemon=True).start()

    def start(self, seconds: float) -> int:
        """Limit the calling thread from now on; return the key of the limit."""
        ends = time.monotonic() + seconds
        with self._mutex:
            self._next += 1
            self._running[self._next] = ends, threading.get_ident()
            if ends < self._wakes_at:  # seldom: the thread wakes at the end of an earlier limit
                self._changed.notify()
            return self._next

    def stop(self, key: int) -> None:
        """End a limit; an exception that is on its way does not arrive later."""
        with self._mutex:  # of C: an exception between its steps would leave it locked
            self._running.pop(key, None)
            if key in self._late:
                self._late.discard(key)
                raise_in_thread(threading.get_ident(), None)

    def _watch(self) -> None:
        with self._mutex:
            while True:
                now = time.monotonic()
                for key in [key for key, (ends, _) in self._running.items() if ends <= now]:
                    self._late.add(key)
                    raise_in_thread(self._running.pop(key)[1], TimeLimitExceeded)
                self._wakes_at = min((ends for ends, _ in self._running.values()), default=float("inf"))
                pause = self._wakes_at - now
                self._changed.wait(min(pause, threading.TIMEOUT_MAX) if self._running else None)


_TIMER: list[_Timer] = []
_LOCK = threading.Lock()


def _timer() -> _Timer:
    """Return the one timer of this process."""
    with _LOCK:
        if not _TIMER:
            _TIMER.append(_Timer())
        return _TIMER[0]
