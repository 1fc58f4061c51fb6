"""JSON lines, appended atomically, with NaN and infinity.

A line counts once its newline is on disk. NaN is `null` and infinity is `"Infinity"`, because JSON has
neither; a mapping of numbers gets both back through ``floats_from_json``.
"""

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, BinaryIO

from truing.errors import RecordError
from truing.utils.atomic_files import disk_errors, write_all
from truing.utils.parse import parse_finite_json
from truing.utils.regular_files import open_regular

INFINITIES = ("Infinity", "-Infinity")

LOCK_TIMEOUT = 1.0
"""Seconds for which a writer retries the lock: ``is_being_written`` holds it for an instant."""


def dump_json(value: Any, indent: int | None = None) -> bytes:
    """Return a value as JSON; keeps the order of keys, escapes everything beyond ASCII."""
    try:
        return json.dumps(_json_safe(value), allow_nan=False, indent=indent).encode()
    except TypeError as error:
        raise RecordError(
            "a value to record cannot be written as JSON",
            got=str(error),
            expected="text, numbers, lists, mappings",
        ) from error


def floats_from_json(numbers: Mapping[str, float | str | None]) -> dict[str, float]:
    """Return numbers by name as floats: `null` is NaN, `"-Infinity"` is −∞.

    Raises:
        TypeError: A value is another text, a truth value, a list or a table.
    """
    return {name: _float_from_json(value) for name, value in numbers.items()}


def _float_from_json(value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in INFINITIES:
        return float(value)
    raise TypeError(f"{value!r:.80} is not a number")


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of every complete line of a file; an incomplete last line is dropped."""
    for number, line in enumerate(complete_lines(path), start=1):
        try:
            value = parse_finite_json(line)
        except ValueError as error:
            raise RecordError(
                f"line {number} of {path} is damaged",
                got=str(error),
                expected="a JSON object",
                remedy="restore the file from a copy; the lines before it are intact",
            ) from error
        yield value


def complete_lines(path: Path) -> Iterator[bytes]:
    r"""Yield the lines of a file that end in a newline: of ``b"a\nb\nto"`` ``b"a\n"`` and ``b"b\n"``."""
    try:
        with open_regular(path) as handle:
            # a line that a writer completes meanwhile would come in two parts
            yield from takewhile(lambda line: line.endswith(b"\n"), handle)
    except OSError as error:
        raise RecordError(
            f"cannot read {path}", got=error.strerror, expected="a file of a run directory"
        ) from error


class JsonlWriter:
    """A file of JSON lines held open for appending, by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            self._handle = open(path, "ab", buffering=0)  # noqa: SIM115 (held until close)
        self._lock()
        self._end = sum(map(len, complete_lines(path)))
        with disk_errors(path):
            self._handle.truncate(self._end)

    def append(self, value: Mapping[str, Any]) -> None:
        """Add one line and sync it. A failed append adds nothing."""
        line = dump_json(value) + b"\n"
        with disk_errors(self.path):
            self._handle.truncate(self._end)  # removes what a failed append left behind
            write_all(self._handle, line)
            os.fsync(self._handle.fileno())
        self._end += len(line)

    def truncate(self, count: int) -> None:
        """Cut the file back to its first ``count`` lines."""
        self._end = sum(map(len, islice(complete_lines(self.path), count)))
        with disk_errors(self.path):
            self._handle.truncate(self._end)
            os.fsync(self._handle.fileno())

    def close(self) -> None:
        """Release the file and its lock."""
        self._handle.close()

    def _lock(self) -> None:
        until = time.monotonic() + LOCK_TIMEOUT
        while not _try_lock(self._handle, fcntl.LOCK_EX):
            if time.monotonic() >= until:
                self._handle.close()
                raise RecordError(
                    f"{self.path} is being written by another process", remedy="wait for it, or stop it first"
                )
            time.sleep(LOCK_TIMEOUT / 50)


def is_being_written(path: Path) -> bool:
    """Whether a process has a JsonlWriter of this file open; False if there is no such file.

    Takes a shared lock and releases it at once, so that any number of readers may ask at a time.
    """
    try:
        with open_regular(path) as handle:
            return not _try_lock(handle, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RecordError(
            f"cannot determine whether {path} is being written",
            got=error.strerror,
            expected="a readable file of a run directory",
        ) from error


def _try_lock(handle: BinaryIO, kind: int) -> bool:
    """Lock a file until it is closed; False if another process holds a conflicting lock."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _json_safe(value: Any) -> Any:
    """Return the same value with every NaN and infinity in it in a form that JSON has."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {name: _json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_safe(item) for item in value]
    return value
