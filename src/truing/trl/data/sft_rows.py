"""Which tokens of an SFT data set TRL trains: whole rows, completions, or turns of the assistant."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from truing.errors import DataError
from truing.trl.arguments.configs import SFTConfig
from truing.trl.data.rows import Row, check_column, is_conversation, rows_of

READY = ("input_ids", "labels")
"""Columns of rows that a script has tokenized itself."""


class SftRows(NamedTuple):
    """Rows, and what of them is trained."""

    rows: Sequence[Row]
    whole: bool  # all tokens of a row; else what the assistant says, or the completion
    text: bool  # rows are text rather than messages


def sft_rows(
    dataset: Any, argument: str, args: SFTConfig, formatting_func: Callable[[Any], Any] | None
) -> SftRows:
    """Return the rows of a data set, with the tokens that TRL's arguments train.

    Raises:
        DataError: The rows are none that TRL trains, or an argument of TRL's does not fit them.
    """
    rows = [_as_chatml(row) for row in rows_of(dataset, argument)]
    if formatting_func is not None:
        rows = _formatted(rows, args, formatting_func)
        return SftRows(rows, whole=True, text=_is_text(rows, "text", argument, args))
    columns = rows[0].keys()
    if "prompt" in columns and "completion" in columns:
        return _pairs(rows, argument, args)
    if "messages" in columns:
        check_column(rows, "messages", argument)
        return SftRows(rows, whole=not args.assistant_only_loss, text=False)
    if args.dataset_text_field in columns and "prompt" not in columns:
        _is_text(rows, args.dataset_text_field, argument, args)
        return SftRows(rows, whole=True, text=True)
    raise DataError(
        f"the rows of {argument} are no demonstrations",
        got=f"columns {', '.join(columns)}",
        expected="prompt and completion, or messages, or text",
        remedy=_row_remedy(columns),
    )


def _as_chatml(row: Row) -> Row:
    """Return a row of ``conversations`` with ``from`` and ``value`` as messages, as TRL does."""
    said = row.get("conversations")
    if not is_conversation(said) or not said or not isinstance(said[0], Mapping) or "from" not in said[0]:
        return row
    names = {"from": "role", "value": "content"}
    messages = [{names.get(key, key): value for key, value in message.items()} for message in said]
    return {**{key: value for key, value in row.items() if key != "conversations"}, "messages": messages}


def _formatted(rows: Sequence[Row], args: SFTConfig, formatting_func: Callable[[Any], Any]) -> list[Row]:
    """Return the texts that a function makes of rows.

    TRL calls it for rows of messages or prompts too, and then trains these as if there were none.
    """
    trained = {"prompt", "messages"} & rows[0].keys()
    if trained or args.completion_only_loss:
        raise DataError(
            "formatting_func makes whole texts",
            got=f"column {trained.pop()}" if trained else "completion_only_loss=True",
            expected="rows of which it makes a text, as instruction and output",
            remedy="leave it out: TRL trains prompt and completion, or messages, without it",
        )
    texts: list[Any] = []
    for index, row in enumerate(rows):
        try:
            texts.append(formatting_func(row))
        except Exception as error:
            raise DataError(
                f"formatting_func raised {type(error).__name__} for row {index}: {error}",
                got=f"columns {', '.join(row)}",
                expected="one text: it is called with one row at a time",
            ) from error
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise DataError(
            "formatting_func returned something other than a text",
            got=f"{type(wrong).__name__} {wrong!r:.100}",
            expected="one text: it is called with one row at a time",
        )
    return [{"text": text} for text in texts]


def _is_text(rows: Sequence[Row], column: str, argument: str, args: SFTConfig) -> bool:
    """Return True; raise unless a column has texts, and no argument asks for turns of them."""
    if check_column(rows, column, argument):
        raise DataError(
            f"{column!r} of {argument} has messages",
            expected="text",
            remedy=f"dataset.rename_column({column!r}, 'messages')",
        )
    _check_no_turns(args, argument)
    return True


def _check_no_turns(args: SFTConfig, argument: str) -> None:
    """Raise if the loss should be on turns of the assistant, which a text does not have."""
    if args.assistant_only_loss:
        raise DataError(
            f"assistant_only_loss=True, but {argument} has no messages",
            expected="messages, as in TRL",
            remedy="leave it out: texts are trained whole, and rows of prompt and completion on completions",
        )


def _pairs(rows: Sequence[Row], argument: str, args: SFTConfig) -> SftRows:
    """Return rows of prompt and completion."""
    kinds = {column: check_column(rows, column, argument) for column in ("prompt", "completion")}
    if len(set(kinds.values())) > 1:
        raise DataError("one of prompt and completion is text, and the other one messages")
    is_text = not kinds["prompt"]
    if is_text:
        _check_no_turns(args, argument)
    whole = args.completion_only_loss is False
    if whole and args.assistant_only_loss:  # all turns of the assistant, those of the prompt too
        rows = [{**row, "messages": [*row["prompt"], *row["completion"]]} for row in rows]
        return SftRows(rows, whole=False, text=False)
    return SftRows(rows, whole, is_text)


def _row_remedy(columns: Collection[str]) -> str:
    """Return how to make demonstrations of other columns."""
    if any(name in columns for name in READY):
        return "give the texts or messages: Truing encodes them itself, so that the record shows them"
    if "conversations" in columns:
        return "dataset.rename_column('conversations', 'messages')"
    if "output" in columns:
        return 'dataset.map(lambda row: {"prompt": row["instruction"], "completion": row["output"]})'
    return "set dataset_text_field to the column with text, or map rows to prompt and completion"
