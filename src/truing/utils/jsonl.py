"""JSON lines that are appended whole or not at all, and JSON that never turns NaN into a number.

A line counts once its newline is on disk. NaN is `null` and infinity is `"Infinity"`, because JSON has
neither; a mapping of numbers gets both back through ``floats_from_json``.
"""

import fcntl
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from truing.errors import RecordError
from truing.utils.atomic_files import disk_errors, write_all

LOCK_TIMEOUT = 1.0
"""Seconds for which a writer asks again for a file: ``is_being_written`` holds it for an instant."""


def dump_json(value: Any, indent: int | None = None) -> bytes:
    """A value as JSON; keeps the order of keys, escapes everything beyond ASCII."""
    try:
        return json.dumps(_json_safe(value), allow_nan=False, indent=indent).encode()
    except TypeError as error:
        raise RecordError(
            "a value to record is no JSON", got=str(error), expected="text, numbers, lists, mappings"
        ) from error


def floats_from_json(numbers: Mapping[str, float | str | None]) -> dict[str, float]:
    """Numbers by name as they were before JSON: `null` is NaN, `"-Infinity"` is −∞."""
    return {name: math.nan if value is None else float(value) for name, value in numbers.items()}


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a file; a torn last one was never recorded and is dropped."""
    objects = []
    for number, line in enumerate(complete_lines(path), start=1):
        try:
            objects.append(json.loads(line))
        except ValueError as error:
            raise RecordError(
                f"line {number} of {path} is damaged",
                got=str(error),
                expected="a JSON object",
                remedy="restore the file from a copy; lines before it are whole",
            ) from error
    return objects


def complete_lines(path: Path) -> list[bytes]:
    r"""The lines of a file that end in a newline: ``b"a\nb\nto"`` gives ``[b"a\n", b"b\n"]``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(
            f"cannot read {path}", got=error.strerror, expected="a file of a run directory"
        ) from error
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


class JsonlWriter:
    """A file of JSON lines held open for appending, by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            self._handle = open(path, "ab", buffering=0)  # noqa: SIM115 (held until close)
        self._lock()
        self._end = sum(map(len, complete_lines(path)))
        self._handle.truncate(self._end)

    def append(self, value: Mapping[str, Any]) -> None:
        """Add one line and sync it. If that fails, nothing was added."""
        line = dump_json(value) + b"\n"
        with disk_errors(self.path):
            self._handle.truncate(self._end)  # removes what a failed append left behind
            write_all(self._handle, line)
            os.fsync(self._handle.fileno())
        self._end += len(line)

    def truncate(self, count: int) -> None:
        """Cut the file back to its first ``count`` lines."""
        self._end = sum(map(len, complete_lines(self.path)[:count]))
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
    """Whether a process has a LineLog of this file open; False where there is no such file.

    Asks for a shared lock and lets it go at once, so that any number may ask while nobody writes.
    """
    try:
        with open(path, "rb") as handle:
            return not _try_lock(handle, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RecordError(
            f"cannot tell whether {path} is being written",
            got=error.strerror,
            expected="a file of a run directory that may be read",
        ) from error


def _try_lock(handle: BinaryIO, kind: int) -> bool:
    """Lock a file until it is closed, where nobody else holds it otherwise."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _json_safe(value: Any) -> Any:
    """The same value with every NaN and infinity in it replaced by what JSON can say."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {name: _json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_safe(item) for item in value]
    return value


def infinities_from_json(value: Any) -> Any:
    """The same value with every infinity in it as a number again; ``null`` stays, for it may be no number."""
    if value in ("Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, Mapping):
        return {name: infinities_from_json(item) for name, item in value.items()}
    return [infinities_from_json(item) for item in value] if isinstance(value, list) else value
