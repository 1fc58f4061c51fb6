"""Errors that a record of unknown origin or another version may raise."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from safetensors import SafetensorError

from truing.errors import RecordError

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
