"""Parses the arguments of requests to the board."""

import math
from collections.abc import Mapping

from truing.errors import BadRequestError

Query = Mapping[str, str]

MAX_INTEGER = 2**53
"""The largest accepted integer: browsers lose precision beyond it."""


def required_text(query: Query, name: str) -> str:
    """Return a required argument."""
    if not query.get(name):
        raise BadRequestError(f"the request lacks {name}")
    return query[name]


def integer(query: Query, name: str, default: int | None = None, minimum: int = 0) -> int:
    """Return an integer argument of at least ``minimum``."""
    text = query.get(name, "") or ("" if default is None else str(default))
    try:
        value = int(text)
    except ValueError as error:
        raise BadRequestError(f"{name} is not an integer", got=repr(text[:50])) from error
    if not minimum <= value <= MAX_INTEGER:
        raise BadRequestError(f"{name} is out of range", got=text[:50], expected=f"at least {minimum}")
    return value


def number(query: Query, name: str) -> float | None:
    """Return a numeric argument; None if it is absent."""
    if not (text := query.get(name, "")):
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadRequestError(f"{name} is not a number", got=repr(text[:50]))
    return value
