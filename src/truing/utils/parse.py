"""JSON and TOML of files that others write: whatever is wrong with them is a ValueError."""

import json
import tomllib
from typing import Any

MALFORMED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of code that reads a value of another type or shape than its writer writes."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON, not UTF-8, nested too deeply, or has a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    Raises:
        ValueError: it is not TOML, nested too deeply, or has a number of thousands of digits.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
