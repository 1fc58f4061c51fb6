"""The usable rows of a file, and notes on the others: an invalid row does not affect the rest."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from truing.envs.data.rows import Row
from truing.errors import DataError

A = TypeVar("A")
B = TypeVar("B")

SHOWN = 10
"""Rows that a note lists individually."""

MAX_REASON_CHARS = 200
"""Characters of a reason; a row may be long."""

ID_FIELDS = ("id", "_id", "ID", "task_id", "example_id")
"""Id fields of the data sets."""


@dataclass(frozen=True)
class UsableRows(Generic[B]):
    """The converted rows, and (name, error) of each rejected one."""

    converted: list[B]
    refused: Sequence[tuple[str, DataError]] = ()

    def notes(self) -> tuple[str, ...]:
        """A note that counts the skipped rows and lists them with reasons."""
        if not self.refused:
            return ()
        each = [f"{name} ({_line(error)})" for name, error in self.refused[:SHOWN]]
        more = len(self.refused) - len(each)
        reasons = "; ".join([*each, f"and {more} more"] if more else each)
        return (f"left out rows that cannot be used: {len(self.refused)}: {reasons}",)


def usable_rows(
    things: Iterable[A],
    make: Callable[[A], B],
    name: Callable[[A], str],
    key: Callable[[B], object] | None = None,
) -> UsableRows[B]:
    """Return the results of ``make`` for each thing that it accepts.

    Args:
        things: Rows, or parsed rows.
        make: Raises ``DataError`` for an unusable thing.
        name: Returns a thing's name for notes.
        key: Returns a result's id; a second result with the same id is rejected.

    Raises:
        DataError: None is usable; the error is the first one's.
    """
    converted: dict[object, B] = {}
    refused: list[tuple[str, DataError]] = []
    for place, thing in enumerate(things):
        try:
            result = make(thing)
            own = place if key is None else key(result)
            if own in converted:
                raise DataError("another row has its id", got=own)
            converted[own] = result
        except DataError as error:
            refused.append((name(thing), error))
    if refused and not converted:
        raise refused[0][1]
    return UsableRows(list(converted.values()), refused)


def row_name(row: Row) -> str:
    """Return the id and location of a row; only the location if it is not an object."""
    try:
        ids = [row.values[field] for field in ID_FIELDS if field in row.values]
    except DataError:
        return row.where
    return f"{ids[0]} at {row.where}" if ids else row.where


def _line(error: DataError) -> str:
    """Return an error on one line, without the remedy."""
    got = "" if error.got is None else f"; got {error.got}"
    line = " ".join(f"{error.what}{got}".split())
    return line if len(line) <= MAX_REASON_CHARS else f"{line[:MAX_REASON_CHARS]} […]"
