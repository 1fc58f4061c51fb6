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
    if dataset is None:
        raise DataError(
            f"there is no {argument}", expected="a datasets.Dataset, or a list of prompts or dicts"
        )
    if _is_no_list(dataset):
        raise DataError(
            f"{argument} is not one data set of known length",
            got=f"{dataset!r:.60}" if isinstance(dataset, str) else type(dataset).__name__,
            expected="a datasets.Dataset, or a list of prompts or dicts",
            remedy='load it and choose a split: load_dataset(name, split="train"); make a list of the rows of'
            ' a stream; of a table, give table.to_dict("records")',
        )
    listed = dataset if isinstance(dataset, Iterable) else [dataset[i] for i in range(len(dataset))]
    rows = [row if isinstance(row, Mapping) else {"prompt": row} for row in listed]
    if not rows:
        raise DataError(f"{argument} has no rows", got=0, expected="at least one row")
    return rows


def _is_no_list(dataset: Any) -> bool:
    """Whether something is no list of rows: a name, splits, a stream, or a table, which lists its columns."""
    is_other = isinstance(dataset, str | bytes | Mapping) or hasattr(dataset, "columns")
    return is_other or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"))


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Return the columns of rows, in order; a row may lack some."""
    return [*dict.fromkeys(name for row in rows for name in row)]


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
                remedy=_column_remedy(row, column),
            )
        kinds.add(is_conversation(value))
    if len(kinds) > 1:
        raise DataError(f"{column!r} of {argument} is text in some rows and messages in others")
    return kinds.pop()


def _column_remedy(row: Row, column: str) -> str:
    """Return how to get a column."""
    value = row.get(column)
    if column in row and is_conversation(value) and value and isinstance(value[0], Mapping):
        return 'name the keys "role" and "content": dataset.map(trl.maybe_convert_to_chatml)'
    if column in row and value in (None, "", []):
        return f"dataset.filter(lambda row: row[{column!r}]) leaves out empty rows"
    if column in row:
        return ""
    texts = [name for name, each in row.items() if isinstance(each, str) or is_conversation(each)]
    if not texts:
        return ""
    return f"name it so: dataset.rename_column({texts[0]!r}, {column!r})"


def check_last_role(rows: Sequence[Row], argument: str) -> None:
    """Raise if a conversation ends with the assistant: TRL samples more of that message, Truing whole turns.

    Args:
        rows: with a ``prompt``.
        argument: name of the data set, for errors.
    """
    for index, row in enumerate(rows):
        prompt = row["prompt"]
        if is_conversation(prompt) and prompt[-1]["role"] == "assistant":
            raise DataError(
                f"the prompt of row {index} of {argument} ends with a message of the assistant",
                got=f"{prompt[-1]!r:.100}",
                expected="a message of the user, a tool or the system in the end: answers are whole turns",
                remedy="leave out the answer: dataset.map(lambda row: {'prompt': row['prompt'][:-1]})",
            )


def messages_of(prompt: str | Sequence[Message]) -> tuple[Message, ...]:
    """Return a prompt as messages; text is one message, which a template without marks renders unchanged."""
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)
    # a Dataset fills keys that a message lacks with None
    return tuple({key: value for key, value in each.items() if value is not None} for each in prompt)
