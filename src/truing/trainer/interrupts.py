"""Deferred Ctrl-C and SIGTERM: a step completes before the run stops, so that none is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATED_CODE = 128 + signal.SIGTERM
"""Exit code of a run that SIGTERM ended."""


class Terminated(KeyboardInterrupt):
    """Raised where ``KeyboardInterrupt`` is raised by Ctrl-C, by SIGTERM."""


@contextmanager
def sigterm_ends_run() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does, and the process with exit code 143.

    Schedulers of clusters send it before they end a job. A handler of the caller's stays.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except Terminated:
        raise SystemExit(TERMINATED_CODE) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


class DeferredInterrupt:
    """Context in which the first Ctrl-C or SIGTERM is noted, and the second raises ``KeyboardInterrupt``."""

    def __init__(self, *, interruptible: bool = True) -> None:
        """Defer signals; with several ranks also while they sample, since all must stop at the same place."""
        self.may_interrupt = interruptible
        self.requested = False
        self._error: type[KeyboardInterrupt] = KeyboardInterrupt
        self._interruptible = False
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> "DeferredInterrupt":
        if threading.current_thread() is threading.main_thread():  # only it may set handlers
            if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
                self._previous_handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_signal)
            if signal.getsignal(signal.SIGTERM) is _terminate:
                self._previous_handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal interrupt the block at once, such as sampling."""
        self._interruptible = self.may_interrupt
        try:
            yield
        finally:
            self._interruptible = False

    def raise_if_requested(self) -> None:
        """Raise ``KeyboardInterrupt`` if a signal was noted."""
        if self.requested:
            raise self._error

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._error = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if self._interruptible or self.requested:
            raise self._error
        self.requested = True
