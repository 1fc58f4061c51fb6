"""A process that ends with the one that started it, however that ends; standard library alone.

A thread waits for that. The kernel's own signal (PR_SET_PDEATHSIG) comes as soon as the *thread* that started
the process ends, and it never comes if the parent ended before it was asked for.
"""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

VARIABLE = "TRUING_PARENT"
"""Environment variable: the id of the process that a process ends with."""

TICK = 0.5
"""Seconds between two looks at the parent."""


def child_variables() -> Mapping[str, str]:
    """Return the environment variables of a process that calls ``end_with_parent``."""
    return {VARIABLE: str(os.getpid())}


def end_with_parent(seconds: float = 0.0) -> None:
    """End this process once its parent has ended.

    The parent is the one that gave it ``child_variables``, or that started it by ``multiprocessing``; nothing
    happens without either. A process that leads a group ends with all of it.

    Args:
        seconds: from SIGTERM to this process until SIGKILL; 0 is SIGKILL at once.
    """
    by_multiprocessing = multiprocessing.parent_process()
    if parent := os.environ.pop(VARIABLE, ""):  # not for those that this one starts
        wait = _waiting_for(int(parent))
    elif by_multiprocessing is not None:
        wait = by_multiprocessing.join
    else:
        return
    threading.Thread(target=_end_after, args=(wait, seconds), name="truing-parent", daemon=True).start()


def end_group(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End a process that leads a group, after ``seconds`` by force, and then all that it started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _waiting_for(parent: int) -> Callable[[], None]:
    """Return what returns once the parent is another process: an orphan gets a new one."""

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(TICK)

    return wait


def _end_after(wait: Callable[[], None], seconds: float) -> None:
    """Wait for the parent's end, then end this process."""
    wait()
    if seconds:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(seconds)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
