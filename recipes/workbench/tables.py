"""A table of rows with ids, as an episode sees it: what was loaded, and what the episode made of it."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from truing.envs.tools import ToolError

Row = Mapping[str, str]
"""Column → text. A row is replaced, never changed in place."""

Cell = TypeVar("Cell")
"""Text, or also None: a customer may be added without some columns."""


class Table(Generic[Cell]):
    """Rows by id. Episodes share the rows that they do not touch, so that a fresh table costs little."""

    def __init__(self, key: str, rows: Mapping[str, Mapping[str, Cell]]) -> None:
        self.key, self.start, self.rows = key, rows, dict(rows)

    def fresh(self) -> "Table[Cell]":
        """The table as it was loaded."""
        return Table(self.key, self.start)

    def search(self, keep: Callable[[Mapping[str, Cell]], bool]) -> list[Mapping[str, Cell]]:
        """The rows that a test keeps, in the order of the table."""
        return [row for row in self.rows.values() if keep(row)]

    def row(self, row_id: str) -> Mapping[str, Cell]:
        """The row of that id."""
        if row_id not in self.rows:
            raise ToolError(f"there is no {self.key} {row_id!r}")
        return self.rows[row_id]

    def field(self, row_id: str, field: str) -> Mapping[str, Cell]:
        """One field of a row, with its name."""
        return {field: self.row(row_id)[self._known(field)]}

    def next_id(self) -> str:
        """One more than the largest id, without leading zeros."""
        return str(max(map(int, self.rows), default=-1) + 1)

    def add(self, row_id: str, row: Mapping[str, Cell]) -> None:
        """Append a row under a new id."""
        self.rows[row_id] = row

    def change(self, row_id: str, field: str, value: Cell) -> None:
        """Set one field of a row."""
        self.rows[row_id] = {**self.row(row_id), self._known(field): value}

    def remove(self, row_id: str) -> None:
        """Delete a row."""
        self.row(row_id)
        del self.rows[row_id]

    def difference(self) -> dict[str, list[Any]]:
        """What the episode ``added``, ``removed`` (ids) and ``changed`` (field → [before, after])."""
        remaining = [(row_id, row) for row_id, row in self.start.items() if row_id in self.rows]
        parts = {
            "added": [row for row_id, row in self.rows.items() if row_id not in self.start],
            "removed": [row_id for row_id in self.start if row_id not in self.rows],
            "changed": [
                _changes(row_id, row, self.rows[row_id])
                for row_id, row in remaining
                if row != self.rows[row_id]
            ],
        }
        return {name: part for name, part in parts.items() if part}

    def _known(self, field: str) -> str:
        """The field, if the table has it."""
        columns = next(iter(self.start.values()))
        if field not in columns:
            raise ToolError(f"there is no field {field!r}, only {', '.join(columns)}")
        return field


def _changes(row_id: str, before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, Any]:
    """The fields of a row that differ."""
    return {"id": row_id} | {
        field: [before[field], after[field]] for field in before if before[field] != after[field]
    }


def moment(text: str) -> datetime:
    """A date, or a date and time, that a model wrote."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)  # the office has one time zone
    except ValueError as error:
        raise ToolError(f"{text!r} is not a date such as 2023-11-30 or 2023-11-30 09:30:00") from error


def contains(value: str | None, text: str) -> bool:
    """Return whether a field contains a text, in any case."""
    return value is not None and text.casefold() in value.casefold()


def one_of(name: str, value: str, valid: Iterable[str]) -> None:
    """Reject a value that a tool does not know."""
    if value not in valid:
        raise ToolError(f"{name} cannot be {value!r}, only {', '.join(valid)}")
