"""The processes below this one: which there are, and their end. Only the supervisor imports this file."""

import os
import signal
import time
from contextlib import suppress

END_SECONDS = 10.0
"""Seconds in which killed processes must have ended."""


def descendants(most: int | None = None) -> set[int]:
    """Return the processes below this one, those that have ended and are not reaped among them.

    Args:
        most: the number at which it stops to look for more.
    """
    found, ahead = set[int](), [os.getpid()]
    while ahead and (most is None or len(found) <= most):
        process = ahead.pop()
        new = _children(process) - found
        found |= new
        ahead += new
    return found


def _children(process: int) -> set[int]:
    """Return the children of a process; none if it has ended."""
    children = set[int]()
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file:
                children |= {int(each) for each in file.read().split()}
    return children


def end_all(group: int) -> int:
    """Kill all processes below this one; return how many are left, such as those of another user.

    Args:
        group: of the program, which the kernel kills as one: no process of it starts another meanwhile.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        stopped = set[int]()
        while new := descendants() - stopped:  # one that is stopped starts no other
            for process in new:
                _signal(process, signal.SIGSTOP)
            stopped |= new
        for process in stopped:
            _signal(process, signal.SIGKILL)
        while (ended := take_ended()) and ended[0]:
            pass
        if ended is None:
            return 0
        time.sleep(0.005)
    return len(descendants())


def _signal(process: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended or belongs to another user."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def take_ended() -> tuple[int, int] | None:
    """Return id and status of a child that has ended; (0, 0) if all run, None if there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
