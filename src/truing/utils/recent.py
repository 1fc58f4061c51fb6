"""A cache that does not grow without end."""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST = 256
"""Values in a cache; programs may ask for others without end."""


class Recent(dict[Key, Value]):
    """The values that were added last."""

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > MOST:
            del self[next(iter(self))]
