"""Types of values in the files of a run directory, with their limits."""

import math
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, Strict

LARGEST = 2**53
"""Beyond any count; such numbers fit into 64 bits, and into the numbers of browsers."""


def _number(value: object) -> object:
    """Return a number of JSON; infinity is text there, and a literal beyond float64 is not one."""
    if value in ("Infinity", "-Infinity"):
        return float(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number")
    return value


def _number_or_nan(value: object) -> object:
    return math.nan if value is None else _number(value)


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
NumberOrNaN = Annotated[float, Strict(), BeforeValidator(_number_or_nan)]
"""NaN is ``null`` in JSON."""

Time = Annotated[float, Strict(), Field(ge=0, lt=253402300800, allow_inf_nan=False)]
"""Seconds since 1970, before the year 10000, where dates end."""

Digits = Annotated[str, Strict(), AfterValidator(_number_of_text)]
Place = tuple[Text, Count]
"""A sample's id, and one of its tokens."""
