"""The rows that can be used, and notes of those that cannot: one odd row leaves the others where they are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from truing.envs.data.rows import Row
from truing.errors import DataError

A = TypeVar("A")
B = TypeVar("B")

SHOWN = 10
"""Rows that a note tells of one by one."""

MAX_REASON_CHARS = 200
"""Characters of a reason; a row may be a page."""

ID_FIELDS = ("id", "_id", "ID", "task_id", "example_id")
"""Fields by which the data sets name their rows."""


@dataclass(frozen=True)
class UsableRows(Generic[B]):
    """What was made of the rows, and why nothing was made of some: (name, error)."""

    converted: list[B]
    refused: Sequence[tuple[str, DataError]] = ()

    def notes(self) -> tuple[str, ...]:
        """A note that counts the rows that were left out, and names them with their reasons."""
        if not self.refused:
            return ()
        each = [f"{name} ({_line(error)})" for name, error in self.refused[:SHOWN]]
        more = len(self.refused) - len(each)
        told = "; ".join([*each, f"and {more} more"] if more else each)
        return (f"left out rows that cannot be used: {len(self.refused)}: {told}",)


def usable_rows(
    things: Iterable[A],
    make: Callable[[A], B],
    name: Callable[[A], str],
    key: Callable[[B], object] | None = None,
) -> UsableRows[B]:
    """What ``make`` makes of each thing, without those that it refuses.

    Args:
        things: Rows, or what was read from rows.
        make: Raises ``DataError`` where a thing cannot be used.
        name: How notes name a thing.
        key: The id of what is made; a second one of the same id is refused.

    Raises:
        DataError: None can be used; the error is the first one's.
    """
    made: dict[object, B] = {}
    refused: list[tuple[str, DataError]] = []
    for place, thing in enumerate(things):
        try:
            result = make(thing)
            own = place if key is None else key(result)
            if own in made:
                raise DataError("another row has its id", got=own)
            made[own] = result
        except DataError as error:
            refused.append((name(thing), error))
    if refused and not made:
        raise refused[0][1]
    return UsableRows(list(made.values()), refused)


def row_name(row: Row) -> str:
    """The id of a row and where it is; of a row that is no object, where it is."""
    try:
        ids = [row.values[field] for field in ID_FIELDS if field in row.values]
    except DataError:
        return row.where
    return f"{ids[0]} at {row.where}" if ids else row.where


def _line(error: DataError) -> str:
    """An error on one line, without what to do about a whole file."""
    got = "" if error.got is None else f"; got {error.got}"
    line = " ".join(f"{error.what}{got}".split())
    return line if len(line) <= MAX_REASON_CHARS else f"{line[:MAX_REASON_CHARS]} […]"
