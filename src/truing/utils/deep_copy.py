"""Deep copies of what Truing and somebody else's code must not share."""

from copy import deepcopy
from typing import TypeVar

from truing.errors import DataError

T = TypeVar("T")


def deep_copy(value: T, what: str) -> T:
    """A deep copy; whatever happens to it changes nothing else.

    Raises:
        DataError: It holds what cannot be copied, such as a lock or an open file.
    """
    try:
        return deepcopy(value)
    except (TypeError, RecursionError) as error:
        raise DataError(
            f"{what} cannot be copied",
            got=f"{type(error).__name__}: {error}",
            expected="data without locks, connections or open files",
            remedy="keep such objects in the environment, and put a name or an index of them here",
        ) from error
