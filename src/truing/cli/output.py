"""Output that is lost while a command runs: its reader closed it, or its disk is full.

It never looks like a result: exit code 1 says that a fault is proven, and 0 that all is well.
"""

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CLOSED, FAILED = 141, 2
"""Exit codes: as if SIGPIPE had ended the process; and as of any error."""


class _Descriptor(io.RawIOBase):
    """A file descriptor; what cannot be written is dropped, and ``lost`` is the exit code for it."""

    def __init__(self, number: int) -> None:
        self._number, self.lost = number, 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._number

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._number)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, or drop the data."""
        if not self.lost:
            try:
                return os.write(self._number, data)
            except OSError as error:
                self.lost = CLOSED if error.errno == errno.EPIPE else FAILED
                self.reason = error.strerror
        return memoryview(data).nbytes


class Output(io.TextIOWrapper):
    """A standard stream; unless ``keeps_running``, the command ends once it is lost."""

    keeps_running = False

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self.descriptor = _Descriptor(stream.fileno())
        super().__init__(
            io.BufferedWriter(self.descriptor),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def write(self, text: str, /) -> int:
        """Write text."""
        written = super().write(text)
        self._end_if_lost()
        return written

    def flush(self) -> None:
        """Write what is buffered."""
        super().flush()
        self._end_if_lost()

    def _end_if_lost(self) -> None:
        if self.descriptor.lost and not self.keeps_running:
            raise SystemExit(self.descriptor.lost)


@contextmanager
def guarded_output() -> Iterator[None]:
    """Guard both standard streams within the block, which then ends with the exit code of a lost one."""
    if sys.stdout is None:  # closed by the shell, as by >&-
        with suppress(OSError):
            os.write(2, b"error: standard output is closed\n  remedy: redirect it, perhaps to /dev/null\n")
        sys.exit(FAILED)
    Output.keeps_running = False
    before = sys.stdout, sys.stderr
    outputs = [_guarded(stream) for stream in before]
    sys.stdout, sys.stderr = outputs
    try:
        yield
    finally:
        keep_running()
        for output in filter(None, outputs):
            output.flush()
        sys.stdout, sys.stderr = before
        lost = [each.descriptor for each in outputs if isinstance(each, Output) and each.descriptor.lost]
        for each in lost:
            if each.lost == FAILED:
                with suppress(OSError):  # of the other stream
                    os.write(2, f"error: output could not be written: {each.reason}\n".encode())
        if lost:
            sys.exit(lost[0].lost)


def _guarded(stream: Any) -> Any:
    """Return a stream guarded, if it has a descriptor: one that a test captures has none."""
    try:
        stream.flush()
        return Output(stream)
    except (AttributeError, OSError, ValueError):
        return stream


def keep_running() -> None:
    """Let this command go on without its output: it trains, and its record is its result."""
    Output.keeps_running = True


def exit_code_of_ranks() -> int:
    """Return the exit code of a launcher whose ranks trained, and wrote to its output until it closed."""
    poll = select.poll()
    poll.register(1, 0)
    return CLOSED if any(event & select.POLLERR for _, event in poll.poll(0)) else 0
