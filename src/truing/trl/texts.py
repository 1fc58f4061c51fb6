"""Rows that TRL trains as a whole: plain text, and conversations with the loss on every token."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from truing.errors import DataError
from truing.trl.configs import SFTConfig
from truing.trl.data import Row, is_conversation, messages_of
from truing.types.message import Message
from truing.types.rollout import DemonstratedText

CUTS: dict[str, Callable[[int], slice]] = {
    "keep_start": lambda longest: slice(None, longest),
    "keep_end": lambda longest: slice(-longest, None),
}
"""What ``truncation_mode`` keeps of a text with more than ``max_length`` tokens."""


def demonstrated_texts(
    rows: Sequence[Row], args: SFTConfig, tokenizer: Any, template: str | None
) -> Iterator[DemonstratedText]:
    """Yield the ids of each row that TRL trains.

    TRL predicts no token without a context: the first one, such as BOS, is not trained.

    Args:
        rows: with a conversation, or with text.
        args: TRL's, which say where a text is and how long it may be.
        tokenizer: of the model.
        template: that renders conversations; None for the tokenizer's.
    """
    for index, row in enumerate(rows):
        content = _content(row, args.dataset_text_field)
        if isinstance(content, str):
            ended = content if content.endswith(tokenizer.eos_token) else content + tokenizer.eos_token
            ids = tokenizer(text=ended)["input_ids"]
        else:
            ids = _rendered(content, row, tokenizer, template)
        if args.max_length is not None:
            ids = ids[CUTS[args.truncation_mode](args.max_length)]
        if len(ids) < 2:
            raise DataError(
                f"row {index} has no token to train",
                got=f"{content!r:.100}",
                expected="at least two tokens: the first one has no context to be predicted from",
                remedy="leave the row out: dataset.filter",
            )
        yield DemonstratedText(tuple(ids), context=1)


def _content(row: Row, column: str) -> str | Sequence[Message]:
    """Return a row as one text, or as the messages of one conversation."""
    if "prompt" not in row:
        return messages_of(row["messages"]) if "messages" in row else row[column]
    prompt, completion = row["prompt"], row["completion"]
    if is_conversation(prompt):
        return (*messages_of(prompt), *messages_of(completion))
    return prompt + completion


def _rendered(messages: Sequence[Message], row: Row, tokenizer: Any, template: str | None) -> Sequence[int]:
    """Return the ids of a conversation, as the chat template writes it."""
    tools = row.get("tools") or None
    options = {
        "tools": json.loads(tools) if isinstance(tools, str) else tools,
        **({} if template is None else {"chat_template": template}),
        **(row.get("chat_template_kwargs") or {}),
    }
    return tokenizer.apply_chat_template([*messages], tokenize=True, return_dict=True, **options)["input_ids"]
