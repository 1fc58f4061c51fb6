"""Deferred Ctrl-C: an update completes before the run stops, so that none is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class DeferredInterrupt:
    """Context in which the first Ctrl-C is noted and the second raises ``KeyboardInterrupt``."""

    def __init__(self, *, interruptible: bool = True) -> None:
        """Defer Ctrl-C; with several ranks also while they sample, since all must stop at the same place."""
        self.may_interrupt = interruptible
        self.requested = False
        self._interruptible = False
        self._previous_handler: Any = None

    def __enter__(self) -> "DeferredInterrupt":
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        if (
            threading.current_thread() is threading.main_thread() and not ignored
        ):  # only the main thread may set handlers
            self._previous_handler = signal.signal(signal.SIGINT, self._on_sigint)
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
            self._previous_handler = None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C interrupt the block at once, such as sampling."""
        self._interruptible = self.may_interrupt
        try:
            yield
        finally:
            self._interruptible = False

    def raise_if_requested(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was noted."""
        if self.requested:
            raise KeyboardInterrupt

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        if self._interruptible or self.requested:
            raise KeyboardInterrupt
        self.requested = True
