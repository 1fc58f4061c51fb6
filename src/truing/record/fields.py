"""Types of values in the files of a run directory, and the check of a value against such a type.

A line that does not fit its type was damaged: it becomes an error that names the key, never a finding.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)

from truing.utils.format import shorten

LARGEST = 2**53
"""Beyond any count; such numbers fit into 64 bits, and into the numbers of browsers."""

EXPECTED = {
    "missing": "a value",
    "extra_forbidden": "no such key",
    "string_type": "text",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
}
"""What a file should have, in its own words; pydantic's are Python's."""


class Misfit(ValueError):
    """A value of another type than its writer writes."""

    def __init__(self, key: str, got: str, expected: str) -> None:
        self.key, self.got, self.expected = key, got, expected
        super().__init__(f"{key}: got {got}, expected {expected}")


def check(adapter: TypeAdapter[Any], value: object, within: str = "") -> None:
    """Raise a Misfit with the first key whose value does not fit; ``within`` is where the value is."""
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        got = "no such key" if first["type"] == "missing" else shorten(repr(first["input"]))
        expected = EXPECTED.get(first["type"], first["msg"].split("Input should be ")[-1])
        where = f"{within}{key}".lstrip(".") or "its first value"
        raise Misfit(where, got, expected.removeprefix("Value error, ")) from error


def _number(value: object) -> object:
    """Return a number of JSON; infinity is text there, and a literal beyond float64 is not one."""
    if value in ("Infinity", "-Infinity"):
        return 0.0
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number")
    return value


def _empty_or(value: Any, check_value: Callable[[Any], Any]) -> Any:
    return value if value == {} else check_value(value)


def _number_of_text(value: str) -> str:
    if not (value.isascii() and value.isdecimal() and len(value) <= 15):
        raise ValueError("digits of an integer")
    return value


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, lt=LARGEST)]
Bytes = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Integer = Annotated[int, Strict(), Field(gt=-LARGEST, lt=LARGEST)]
Number = Annotated[float, Strict(), BeforeValidator(_number)]
Time = Annotated[float, Strict(), Field(ge=0, lt=253402300800, allow_inf_nan=False)]
"""Seconds since 1970, before the year 10000, where dates end."""

Digits = Annotated[str, Strict(), AfterValidator(_number_of_text)]
Place = tuple[Text, Count]
"""A sample's id, and one of its tokens."""

EmptyOr = WrapValidator(_empty_or)
"""Marks a table that may be empty."""
