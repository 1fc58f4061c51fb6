"""Atomic file writes: after a crash, or on a full disk, either all bytes are there or none."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from truing.errors import RecordError


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a RecordError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"cannot write {path}",
            got=error.strerror or str(error),
            remedy="free space or fix permissions, then continue with --resume; the record so far is intact",
        ) from error


def write_all(handle: BinaryIO, data: bytes) -> None:
    """Write every byte to an unbuffered file, whose own ``write`` may stop early on a full disk."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[handle.write(remaining) :]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: to a temporary file, synced, renamed, and the directory synced."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with disk_errors(path):
            with open(temporary, "wb", buffering=0) as handle:
                write_all(handle, data)
                os.fsync(handle.fileno())
            move_into_place(temporary, path)
    finally:
        remove_temporary(temporary)


def remove_temporary(path: Path) -> None:
    """Remove a file that was not renamed, if there is one; the error that it is there for must be raised."""
    with suppress(OSError):
        path.unlink()


def move_into_place(temporary: Path, path: Path) -> None:
    """Rename a synced file and sync the directory, so that the new name survives a power cut."""
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sha256(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()
