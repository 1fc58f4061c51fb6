"""Which tokens of an SFT data set TRL trains: whole rows, completions, or turns of the assistant."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from truing.envs.conversations import Conversation, column_notes, is_sharegpt
from truing.errors import DataError
from truing.trl.arguments.configs import SFTConfig
from truing.trl.data.rows import Row, conversations_of, rows_of

READY = ("input_ids", "labels")
"""Columns of rows that a script has tokenized itself."""

MESSAGES = ("messages", "conversations")
"""Columns with conversations."""


class SftRows(NamedTuple):
    """Rows, and what of them is trained."""

    conversations: Sequence[Conversation]
    whole: bool  # all tokens of a row; else what the assistant says, or the completion
    text: bool  # rows are text rather than messages
    notes: Sequence[str]  # on what nothing reads


def sft_rows(
    dataset: Any, argument: str, args: SFTConfig, formatting_func: Callable[[Any], Any] | None
) -> SftRows:
    """Return the rows of a data set, with the tokens that TRL's arguments train.

    Raises:
        DataError: The rows are none that TRL trains, or an argument of TRL's does not fit them.
    """
    rows = rows_of(dataset, argument)
    if formatting_func is not None:
        rows, read = _formatted(rows, args, formatting_func), ("text",)
    else:
        read = _read_columns(rows[0], argument, args)
    conversations = conversations_of(rows, argument, read, raw=read[0] not in MESSAGES)
    whole = args.completion_only_loss is False if len(read) == 2 else not args.assistant_only_loss
    if conversations[0].is_text:
        if read[0] in MESSAGES:
            raise DataError(
                f"{read[0]!r} of {argument} has text",
                got=f"{conversations[0].messages[0]['content']!r:.100}",
                expected="messages",
                remedy=f"dataset.rename_column({read[0]!r}, {args.dataset_text_field!r})",
            )
        _check_no_turns(args, argument)
    elif read[0] not in (*MESSAGES, "prompt"):
        raise DataError(
            f"{read[0]!r} of {argument} has messages",
            expected="text",
            remedy=f"dataset.rename_column({read[0]!r}, 'messages')",
        )
    if whole and args.assistant_only_loss:  # all turns of the assistant, those of the prompt too
        whole, conversations = False, [replace(each, prompt_length=0) for each in conversations]
    notes = column_notes(rows, {*read, "tools", "chat_template_kwargs"}, argument, "are not read")
    return SftRows(conversations, whole, conversations[0].is_text, notes)


def _read_columns(row: Row, argument: str, args: SFTConfig) -> tuple[str, ...]:
    """Return the columns that TRL trains, by those of the first row."""
    columns = row.keys()
    if {"prompt", "completion"} <= columns:
        return "prompt", "completion"
    if "messages" in columns:
        return ("messages",)
    if is_sharegpt(row):
        return ("conversations",)
    if args.dataset_text_field in columns and "prompt" not in columns:
        return (args.dataset_text_field,)
    raise DataError(
        f"the rows of {argument} are not demonstrations",
        got=f"columns {', '.join(columns)}",
        expected="prompt and completion, or messages, or text",
        remedy=_row_remedy(columns),
    )


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


def _check_no_turns(args: SFTConfig, argument: str) -> None:
    """Raise if the loss should be on turns of the assistant, which a text does not have."""
    if args.assistant_only_loss:
        raise DataError(
            f"assistant_only_loss=True, but {argument} has no messages",
            expected="messages, as in TRL",
            remedy="leave it out: texts are trained whole, and rows of prompt and completion on completions",
        )


def _row_remedy(columns: Collection[str]) -> str:
    """Return how to make demonstrations of other columns."""
    if any(name in columns for name in READY):
        return "give the texts or messages: Truing encodes them itself, so that the record shows them"
    if "conversations" in columns:
        return "dataset.rename_column('conversations', 'messages')"
    if "output" in columns:
        return 'dataset.map(lambda row: {"prompt": row["instruction"], "completion": row["output"]})'
    return "set dataset_text_field to the column with text, or map rows to prompt and completion"
