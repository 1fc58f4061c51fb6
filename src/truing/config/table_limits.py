"""Limits on a recipe's table that hold before its keys are known."""

from collections.abc import Mapping
from typing import Any

from truing.errors import RecipeError

DEEPEST = 16
"""Tables and lists within each other; recipes have about five."""

WIDEST_INTEGER = 64
"""Bits of a whole number, as TOML guarantees; Python's have no limit, and long ones print slowly."""


def check_limits(table: Mapping[str, Any]) -> None:
    """Raise RecipeError if tables are nested deeper, or numbers longer, than a recipe's."""
    left: list[tuple[str, Any, int]] = [("", table, 0)]
    while left:
        key, value, depth = left.pop()
        if depth > DEEPEST:
            raise RecipeError(
                f"the recipe nests tables or lists {depth} deep",
                got=f"{key[:80]}…",
                expected=f"at most {DEEPEST}",
            )
        if isinstance(value, int) and value.bit_length() > WIDEST_INTEGER:
            raise RecipeError(
                f"recipe key {key!r} has an invalid value",
                got=f"a whole number of {value.bit_length()} bits",
                expected=f"at most {WIDEST_INTEGER} bits",
            )
        if isinstance(value, Mapping):
            left += [(f"{key}.{name}".removeprefix("."), each, depth + 1) for name, each in value.items()]
        elif isinstance(value, list | tuple):
            left += [(key, each, depth + 1) for each in value]
