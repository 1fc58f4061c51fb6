"""State of the whole process that a library changes and leaves: put back."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from truing.errors import TruingError

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
def no_early_exit(what: str) -> Iterator[None]:
    """Let no code within the block end this process with exit code 0, as if it had run to its end.

    Raises:
        TruingError: The code raised SystemExit, as by ``sys.exit(0)``.
    """
    real, process = os._exit, os.getpid()

    def leave(code: int) -> None:
        if os.getpid() == process and not code:  # in a fork it is how the fork ends
            caller = sys._getframe(1)
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            os.write(2, f"error: os._exit({code}) at {place} ended {what} before it was done\n".encode())
            code = TruingError.exit_code
        real(code)

    os._exit = leave  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    except SystemExit as error:
        if error.code:
            raise
        raise TruingError(
            f"{what} was ended by SystemExit before it was done",
            got=f"exit code {error.code}",
            remedy="remove the call of sys.exit() from your environment, reward or callback",
        ) from error
    finally:
        os._exit = real


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
