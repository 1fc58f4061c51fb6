"""Ends this process if a call of others' code neither returns nor lets other threads run.

A regular expression, ``9**9**9`` or ``list(count())`` blocks the interpreter: no thread of this process could
report it. A second process (``watchdog_main.py``) is told when calls begin and end. A call that is overdue
ends this one by SIGVTALRM, with an error that names it and the line at which it is.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from truing.utils import watchdog_main


class _Watchdog:
    """The second process, as long as this one lives."""

    def __init__(self) -> None:
        self._keys = count(1)
        trace, written = os.pipe()
        self._trace = written  # open as long as the handler is
        faulthandler.register(signal.SIGVTALRM, file=written, all_threads=True, chain=True)
        command = [sys.executable, "-I", "-S", watchdog_main.__file__, str(os.getpid()), str(trace)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[trace], bufsize=0)
        os.close(trace)
        assert self._process.stdin is not None
        self._told = self._process.stdin.fileno()

    def begin(self, what: str, seconds: float, remedy: str) -> int:
        """Tell that a call begins, and its time limit; return its key."""
        key = next(self._keys)
        self._tell([key, seconds, what[:300], remedy[:300]])
        return key

    def end(self, key: int) -> None:
        """Tell that a call ended, or that nobody waits for it."""
        self._tell([key])

    def _tell(self, message: list[int | float | str]) -> None:
        with suppress(BrokenPipeError):  # somebody ended it; the run needs it only if something hangs
            os.write(self._told, json.dumps(message).encode() + b"\n")  # short, so it is one write


_STARTED: dict[int, _Watchdog] = {}
"""The watchdog by process: a fork has none."""

_LOCK = threading.Lock()


def start() -> None:
    """Start the watchdog of this process, once."""
    with _LOCK:
        if os.getpid() not in _STARTED:
            _STARTED[os.getpid()] = _Watchdog()


def begin(what: str, seconds: float, remedy: str) -> int:
    """Tell the watchdog that a call begins; return its key, 0 without a watchdog."""
    started = _STARTED.get(os.getpid())
    return 0 if started is None else started.begin(what, seconds, remedy)


def end(key: int) -> None:
    """Tell the watchdog that a call ended, or that nobody waits for it."""
    if key:
        _STARTED[os.getpid()].end(key)


@contextmanager
def watched(what: str, seconds: float, remedy: str) -> Iterator[None]:
    """Let the watchdog, if there is one, end the process unless the code ends in time."""
    key = begin(what, seconds, remedy)
    try:
        yield
    finally:
        end(key)
