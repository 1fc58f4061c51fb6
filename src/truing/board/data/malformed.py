"""What a record may lead to that somebody made by hand, or a newer or older version."""

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
def as_record_error(what: str) -> Iterator[None]:
    """Raise a RecordError that names the record, whatever its contents lead to."""
    try:
        yield
    except MALFORMED_ERRORS as error:
        raise RecordError(f"the record of {what} is not as it should be", got=repr(error)[:500]) from error
