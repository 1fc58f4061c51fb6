"""What somebody asks the board for: a view's name is looked up elsewhere, its arguments are read here."""

import math
from collections.abc import Mapping

from truing.errors import BadRequestError

Query = Mapping[str, str]

MAX_INTEGER = 2**53
"""The largest whole number that may be asked for: beyond it a browser's own numbers have gaps."""


def required_text(query: Query, name: str) -> str:
    """An argument that must be there."""
    if not query.get(name):
        raise BadRequestError(f"the question lacks {name}")
    return query[name]


def integer(query: Query, name: str, default: int | None = None, least: int = 0) -> int:
    """An argument that is a whole number, and no less than ``least``."""
    text = query.get(name, "") or ("" if default is None else str(default))
    try:
        value = int(text)
    except ValueError as error:
        raise BadRequestError(f"{name} is no whole number", got=repr(text[:50])) from error
    if not least <= value <= MAX_INTEGER:
        raise BadRequestError(f"{name} is out of range", got=text[:50], expected=f"at least {least}")
    return value


def number(query: Query, name: str) -> float | None:
    """An argument that is a number; None where it is not given."""
    if not (text := query.get(name, "")):
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadRequestError(f"{name} is no number", got=repr(text[:50]))
    return value
