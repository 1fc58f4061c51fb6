"""Rows of a TRL data set: a ``datasets.Dataset``, or a list of prompts or dicts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from truing.envs.conversations import Conversation, read_row
from truing.errors import DataError

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
    """Whether something is not a list of rows: a name, splits, a stream, or a table with column names."""
    is_other = isinstance(dataset, str | bytes | Mapping) or hasattr(dataset, "columns")
    return is_other or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"))


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Return the columns of rows, in order; a row may lack some."""
    return [*dict.fromkeys(name for row in rows for name in row)]


def conversations_of(
    rows: Sequence[Row], argument: str, columns: Sequence[str], *, raw: bool, tools: str | None = "tools"
) -> list[Conversation]:
    """Return the rows of a data set as conversations, or all as texts.

    Args:
        rows: of the data set.
        argument: its name, for errors.
        columns: with the messages or texts.
        raw: whether text is for the tokenizer as it is.
        tools: the column with schemas of tools, if rows have them.
    """
    read = [
        read_row(row, f"row {i} of {argument}", columns, raw=raw, tools=tools) for i, row in enumerate(rows)
    ]
    if len({each.is_text for each in read}) > 1:
        text, messages = (
            next(each.where for each in read if each.is_text is is_text) for is_text in (True, False)
        )
        raise DataError(
            f"{' and '.join(columns)} of {argument} is text in some rows and messages in others",
            got=f"text in {text}, messages in {messages}",
            expected="one of both in all rows",
        )
    return read


def check_last_role(conversations: Sequence[Conversation]) -> None:
    """Raise if a prompt ends with the assistant: TRL samples more of that message, Truing whole turns."""
    for each in conversations:
        if each.messages[-1]["role"] == "assistant":
            raise DataError(
                f"the prompt of {each.where} ends with a message of the assistant",
                got=f"{each.messages[-1]!r:.100}",
                expected="a message of the user, a tool or the system in the end: answers are whole turns",
                remedy="leave out the answer: dataset.map(lambda row: {'prompt': row['prompt'][:-1]})",
            )
