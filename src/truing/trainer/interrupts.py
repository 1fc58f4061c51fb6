"""Ctrl-C in the middle of an update waits until the update is whole, so that none is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class DeferredInterrupt:
    """Within it, the first Ctrl-C is noted and the second ends everything at once."""

    def __init__(self) -> None:
        self.requested = False
        self._interruptible = False
        self._before: Any = None

    def __enter__(self) -> "DeferredInterrupt":
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        if threading.current_thread() is threading.main_thread() and not ignored:  # no other may take signals
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """What can be left at any time, such as drawing."""
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False

    def raise_if_requested(self) -> None:
        """End here, if somebody asked to."""
        if self.requested:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._interruptible or self.requested:
            raise KeyboardInterrupt
        self.requested = True
