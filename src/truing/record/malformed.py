"""Errors that a record of unknown origin or another version may raise."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from safetensors import SafetensorError

from truing.errors import RecordError
from truing.record.fields import Misfit
from truing.utils.format import shorten
from truing.utils.parse import MALFORMED

MALFORMED_ERRORS = (
    *(LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError, RuntimeError),
    *(OSError, MemoryError, pa.ArrowException, SafetensorError),
)


@contextmanager
def as_record_error(subject: str) -> Iterator[None]:
    """Convert errors of a malformed record into a RecordError that names it."""
    try:
        yield
    except MALFORMED_ERRORS as error:
        raise RecordError(f"the record of {subject} is malformed", got=repr(error)[:500]) from error


@contextmanager
def damaged_line(path: Path, number: int) -> Iterator[None]:
    """Convert errors of a line that does not fit its type into a RecordError with file, line and key."""
    remedy = "restore the file from a copy, or use the version of Truing that wrote it"
    try:
        yield
    except Misfit as error:
        raise RecordError(
            f"line {number} of {path} is damaged at {error.key}",
            got=error.got,
            expected=error.expected,
            remedy=remedy,
        ) from error
    except MALFORMED as error:
        raise RecordError(
            f"line {number} of {path} is damaged",
            got=shorten(repr(error)),
            expected="a line of JSON",
            remedy=remedy,
        ) from error
