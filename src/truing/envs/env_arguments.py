"""The recipe name and keys that an environment was constructed with: another process can repeat it."""

import weakref
from collections.abc import Mapping
from typing import Any

_ARGUMENTS_BY_ID: dict[int, tuple[weakref.ref[Any], str, dict[str, Any]]] = {}
"""Name and keys by the identity of an environment, since environments need not be hashable."""


def record_env_arguments(env: object, name: str, config: Mapping[str, Any]) -> None:
    """Remember the recipe keys of an environment as long as it exists."""
    key = id(env)
    try:
        reference = weakref.ref(env, lambda _: _ARGUMENTS_BY_ID.pop(key, None))
    except TypeError:  # a class with __slots__: it is pickled instead
        return
    _ARGUMENTS_BY_ID[key] = reference, name, dict(config)


def env_arguments(env: object) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the keys that an environment was made from; None if it is an own object."""
    made = _ARGUMENTS_BY_ID.get(id(env))
    return made[1:] if made is not None and made[0]() is env else None
