"""Rows of a TRL data set: a ``datasets.Dataset``, or a list of prompts or dicts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from truing.errors import DataError
from truing.types.message import Message

Row = Mapping[str, Any]


def rows_of(dataset: Any, argument: str) -> list[Row]:
    """Return the rows of a data set, as dicts.

    Args:
        dataset: a ``datasets.Dataset``, or a list of prompts, of conversations or of dicts.
        argument: its name, for errors.
    """
    if isinstance(dataset, Mapping) or not isinstance(dataset, Iterable) or not hasattr(dataset, "__len__"):
        raise DataError(
            f"{argument} is not one data set of known length",
            got=type(dataset).__name__,
            expected="a datasets.Dataset, or a list of prompts or dicts",
            remedy='choose a split: load_dataset(name, split="train"); make a list of the rows of a stream',
        )
    rows = [row if isinstance(row, Mapping) else {"prompt": row} for row in dataset]
    if not rows:
        raise DataError(f"{argument} has no rows", got=0, expected="at least one row")
    return rows


def is_conversation(value: object) -> bool:
    """Whether a prompt or completion is a list of messages."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def check_column(rows: Sequence[Row], column: str, argument: str) -> bool:
    """Return whether a column has conversations rather than text; raise unless all rows have one kind.

    Raises:
        DataError: A row lacks the column, or has another kind than the first.
    """
    kinds: set[bool] = set()
    for index, row in enumerate(rows):
        value = row.get(column)
        valid = isinstance(value, str) or (
            is_conversation(value)
            and bool(value)
            and all(
                isinstance(message, Mapping) and {"role", "content"} <= message.keys() for message in value
            )
        )
        if not valid:
            raise DataError(
                f"row {index} of {argument} has no {column!r} that can be used",
                got=f"columns {', '.join(row)}; {column} = {value!r:.100}",
                expected="text, or a list of messages with a role and a content",
            )
        kinds.add(is_conversation(value))
    if len(kinds) > 1:
        raise DataError(f"{column!r} of {argument} is text in some rows and messages in others")
    return kinds.pop()


def messages_of(prompt: str | Sequence[Message]) -> tuple[Message, ...]:
    """Return a prompt as messages; text is one message, which a template without marks renders unchanged."""
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)
    # a Dataset fills keys that a message lacks with None
    return tuple({key: value for key, value in each.items() if value is not None} for each in prompt)
