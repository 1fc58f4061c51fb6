"""How large a text or a list an operation of a chat template makes, at most: before it is made."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2.utils import Namespace

JSON_FACTOR = 6
"""Characters of an escaped character, as in JSON and HTML."""

ITEM, PIECE = 8, 64
"""Bytes of an item of a list, and of a short text, at least."""

WHITE_SPACE = " \n\t\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def extent(value: Any, known: dict[int, int] | None = None) -> int:
    """Return about how long a value is as text; a part counts wherever it is."""
    if isinstance(value, str | bytes):
        return len(value) + 1
    if isinstance(value, Namespace):
        value = vars(value)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return 1 + value.bit_length() // 3 if isinstance(value, int) else 8
    known = {} if known is None else known
    if id(value) not in known:
        known[id(value)] = 1  # within itself
        parts = [*value, *value.values()] if isinstance(value, Mapping) else value
        known[id(value)] = 1 + sum(extent(part, known) for part in parts)
    return known[id(value)]


def length(value: Any) -> int:
    """Return the characters of a text, or the bytes of a list without what it holds."""
    return len(value) if isinstance(value, str) else ITEM * len(value) if hasattr(value, "__len__") else ITEM


def amount(value: Any) -> int:
    """Return how much an argument may make longer: a number is a width or a count."""
    return abs(value) if isinstance(value, int) else 0 if value is None else extent(value)


def formatted(text: str, arguments: Any) -> float:
    """Return the largest length of a formatted text."""
    widths = sum(int(digits) if len(digits) < 16 else float("inf") for digits in re.findall(r"\d+", text))
    parts: list[Any] = [*arguments.values()] if isinstance(arguments, Mapping) else [arguments]
    parts = [*parts, *arguments] if isinstance(arguments, tuple) else parts
    fields, nested = text.count("%") + text.count("{"), "*" in text or "{" in text
    each = max((amount(part) if nested else extent(part) for part in parts), default=0)
    return len(text) + widths + fields * each


def _replaced(text: str, old: str, new: str, *_: Any) -> int:
    return len(text) + text.count(old) * len(new)


def _pieces(text: str, separator: Any = None, *_: Any) -> int:
    """Return the size of the parts of a text: between separators, or between white space."""
    separators = (separator,) if isinstance(separator, str) and separator else WHITE_SPACE
    return len(text) + PIECE * (1 + sum(map(text.count, separators)))


def _items(value: Any, *_: Any) -> int:
    """Return the size of a list of a value's items, or of a text's characters."""
    return PIECE * len(value) if isinstance(value, str) else JSON_FACTOR * extent(value)


def _joined(separator: Any, items: Iterable[Any]) -> int:
    items = list(items)
    return sum(map(extent, items)) + len(items) * extent(separator)


def _product(value: Any, *arguments: Any) -> int:
    """Return a bound where each part may get each argument."""
    size = extent(value)
    for argument in arguments:
        size += extent(value) * (1 + amount(argument))
    return JSON_FACTOR * size


def _translated(text: str, table: Mapping[int, Any]) -> int:
    return len(text) * max((extent(each) for each in table.values()), default=1)


METHODS: Mapping[str, Callable[..., float]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill", "expandtabs"), _product),
    **dict.fromkeys(("split", "rsplit", "splitlines"), _pieces),
    "replace": _replaced,
    "join": _joined,
    "translate": _translated,
    "format": lambda text, *arguments, **named: formatted(text, (*arguments, *named.values())),
    "format_map": formatted,
}
"""The length of what a method of a text makes; any other makes at most a copy."""

FILTERS: Mapping[str, Callable[..., float]] = {
    **dict.fromkeys(
        (
            "center",
            "indent",
            "wordwrap",
            "batch",
            "slice",
            "tojson",
            "urlize",
            "xmlattr",
            "pprint",
            "truncate",
        ),
        _product,
    ),
    **dict.fromkeys(("list", "sort", "unique"), _items),
    "replace": lambda value, old, new, *_: _replaced(str(value), str(old), str(new)),
    "join": lambda value, separator="", *_: _joined(separator, value),
    "format": lambda text, *arguments, **named: formatted(str(text), (*arguments, *named.values())),
}
"""The length of what a filter makes; any other makes a copy, escaped at most."""
