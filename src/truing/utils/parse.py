"""JSON and TOML of files that others write: whatever is wrong with them is a ValueError."""

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

MALFORMED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of code that reads a value of another type or shape than its writer writes."""

MAX_DEPTH = 64
"""Lists and objects within each other in what a program sends or leaves: Python copies it by recursion."""

MAX_PARTS = 100
"""Of a dotted key of TOML."""
DOTTED = re.compile(r"[\w.-]+")


def _is_long_key(word: str) -> bool:
    """Return whether a word is a dotted key of many parts; a line of dots in a text is none."""
    parts = word.split(".")
    return len(parts) > MAX_PARTS and all(parts)


def parse_json(text: str | bytes, *, finite: bool = False) -> Any:
    """Return the value of a JSON text.

    Args:
        text: of JSON, which Python writes with NaN and infinity.
        finite: whether these are none of its numbers.

    Raises:
        ValueError: it is not JSON, not UTF-8, nested too deeply, or has a number of thousands of digits.
    """
    strict = {"parse_float": _finite, "parse_constant": _no_constant} if finite else {}
    try:
        return json.loads(text, **strict)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_finite_json(text: bytes) -> Any:
    """Return the value of a JSON text that Truing wrote: NaN and infinity are not numbers of JSON there.

    Raises:
        ValueError: the same, or a number is beyond float64, an integer beyond 64 bits, or a text has half a
            surrogate pair, which cannot be printed.
    """
    try:
        value = json.loads(text, parse_int=_int64, parse_float=_finite, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if rb"\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()  # a UnicodeEncodeError of half a surrogate pair
    return value


def is_deep(value: Any) -> bool:
    """Whether a value has lists and objects more than ``MAX_DEPTH`` within each other."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [part for each in level for part in _parts(each)]
    return any(isinstance(each, Mapping | list | tuple) for each in level)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _int64(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"an integer of {len(digits.removeprefix('-'))} digits")
    return int(digits)


def _finite(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError(f"{digits:.80} is beyond the range of numbers")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    Raises:
        ValueError: it is not TOML, nested too deeply, or has a number of thousands of digits.
    """
    # tomllib takes time and memory that grow with the square of the parts of a dotted key
    if any(_is_long_key(word[0]) for word in DOTTED.finditer(text)):
        raise ValueError(f"a dotted key has more than {MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
