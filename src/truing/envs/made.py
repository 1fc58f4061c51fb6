"""Which environments were made from a recipe, and from which keys: another process can make them again."""

import weakref
from collections.abc import Mapping
from typing import Any

_MADE: dict[int, tuple[weakref.ref[Any], str, dict[str, Any]]] = {}
"""Name and keys by the identity of an environment, since environments need not be hashable."""


def remember(env: object, name: str, config: Mapping[str, Any]) -> None:
    """Remember the recipe keys of an environment as long as it exists."""
    key = id(env)
    try:
        reference = weakref.ref(env, lambda _: _MADE.pop(key, None))
    except TypeError:  # a class with __slots__: it is pickled instead
        return
    _MADE[key] = reference, name, dict(config)


def made_from(env: object) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the keys that an environment was made from; None if it is an own object."""
    made = _MADE.get(id(env))
    return made[1:] if made is not None and made[0]() is env else None
