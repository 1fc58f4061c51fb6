"""Deep copies of objects that Truing hands to user code."""

from copy import deepcopy
from typing import TypeVar

from truing.errors import DataError

T = TypeVar("T")


def deep_copy(value: T, name: str) -> T:
    """Return a deep copy of a value.

    Raises:
        DataError: The value holds something that cannot be copied, such as a lock or an open file.
    """
    try:
        return deepcopy(value)
    except (TypeError, RecursionError) as error:
        raise DataError(
            f"{name} cannot be copied",
            got=f"{type(error).__name__}: {error}",
            expected="data without locks, connections or open files",
            remedy="keep such objects in the environment, and put a name or an index of them here",
        ) from error
