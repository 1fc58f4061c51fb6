"""State of the whole process that a library changes and leaves: put back."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals by which users and schedulers end a process."""


@contextmanager
def signal_handlers_kept() -> Iterator[None]:
    """Put the handlers of ``SIGNALS`` back after the block; only the main thread can have changed them."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if handler is not None:  # not set from Python: cannot be set from there
                    signal.signal(number, handler)


@contextmanager
def environment_kept() -> Iterator[None]:
    """Put the environment variables back after the block."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
