"""The check of a value in the files of a run directory against its type.

A line that does not fit its type was damaged: it becomes an error that names the key, never a finding.
"""

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from truing.utils.format import shorten

T = TypeVar("T")

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


def check(adapter: TypeAdapter[T], value: object, within: str = "") -> T:
    """Return a parsed value as its type; raise a Misfit with the first key that does not fit.

    ``within`` is where the value is.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        got = "no such key" if first["type"] == "missing" else shorten(repr(first["input"]))
        expected = EXPECTED.get(first["type"], first["msg"].split("Input should be ")[-1])
        where = f"{within}{key}".lstrip(".") or "its first value"
        raise Misfit(where, got, expected.removeprefix("Value error, ")) from error
