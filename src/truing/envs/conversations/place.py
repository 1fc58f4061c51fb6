"""The place of a value in a row, or in a request, for errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truing.errors import DataError
from truing.utils.parse import parse_json

SHOWN = 200
"""Characters of a value that an error shows."""


@dataclass(frozen=True)
class Place:
    """A column of a row, and a part of it in words."""

    where: str  # the row
    column: str
    inside: str = ""
    noun: str = "column"  # what a request calls a field

    def of(self, part: str) -> "Place":
        """Return the place of a part."""
        return replace(self, inside=f"{self.inside}, {part}" if self.inside else part)

    def error(self, got: Any, expected: str, remedy: str = "") -> DataError:
        """Return the error for a value that cannot be used."""
        shown = repr(got)
        return DataError(
            f"{self.noun} {self.column!r} of {self.where} cannot be used"
            + (f": {self.inside}" * bool(self.inside)),
            got=shown if len(shown) <= SHOWN else f"{shown[:SHOWN]} […]",
            expected=expected,
            remedy=remedy,
        )

    def parsed(self, value: Any, expected: str) -> Any:
        """Return the value of JSON text; another value as it is."""
        if not isinstance(value, str):
            return value
        try:
            return parse_json(value)
        except ValueError as error:
            raise self.error(value, expected, f"write JSON that can be read: {error}") from error


def check_encodable(row: Mapping[str, Any], where: str) -> None:
    """Raise if a text of a row holds half of a surrogate pair: no tokenizer and no file can take it."""
    for column, value in row.items():
        if (text := unencodable(column) or unencodable(value)) is not None:
            raise Place(where, column).error(
                text,
                "text without half of a surrogate pair (\\ud800 to \\udfff)",
                "take it out, or write the whole pair: text.encode('utf-16', 'surrogatepass')"
                ".decode('utf-16', 'replace') joins pairs and replaces halves",
            )


def unencodable(value: Any) -> str | None:
    """Return a text within a value that UTF-8 cannot encode, with what stands around it; None without one."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return value[max(0, error.start - 20) : error.end + 20]
        return None
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    parts = value if isinstance(value, Sequence) and not isinstance(value, bytes) else ()
    return next((text for part in parts if (text := unencodable(part)) is not None), None)
