"""Run what may hang or fail (tools, environments) in threads of its own, each with a time limit.

A thread cannot be stopped: one that hangs is left behind as a daemon, and its episode is over, since
the world may still be changing under it.
"""

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 16
"""Threads that run at one time."""


@dataclass
class Outcome(Generic[T]):
    """What a call gave: its value, or the traceback of what it raised, or that it did not end."""

    value: T | None = None
    error: str = ""


def in_threads(calls: Sequence[Callable[[], T]], timeout: float) -> list[Outcome[T]]:
    """The outcome of each call, in their order; ``timeout`` is in seconds, for each."""
    outcomes: list[Outcome[T]] = []
    for first in range(0, len(calls), AT_ONCE):
        outcomes += _together(calls[first : first + AT_ONCE], timeout)
    return outcomes


def _together(calls: Sequence[Callable[[], T]], timeout: float) -> list[Outcome[T]]:
    """The outcomes of calls that are started at one time."""
    outcomes = [Outcome[T](error=f"it did not end within {timeout:g} s") for _ in calls]
    threads = [
        threading.Thread(target=_run, args=(call, outcomes, i), daemon=True) for i, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(outcomes)  # a copy: a thread that ends later changes what nobody reads


def _run(call: Callable[[], T], outcomes: list[Outcome[T]], place: int) -> None:
    """Make a call and keep what became of it; whatever a world raises is data, not a crash."""
    try:
        outcome = Outcome(value=call())
    except BaseException:  # noqa: BLE001 — other people's worlds: in a thread, sys.exit() ends them alone
        outcome = Outcome(error=traceback.format_exc())
    outcomes[place] = outcome
