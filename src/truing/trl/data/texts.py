"""Rows that TRL trains as a whole: plain text, and conversations with the loss on every token."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from truing.chat.render import content_forms
from truing.errors import DataError
from truing.trl.arguments.configs import SFTConfig
from truing.trl.data.rows import Row, is_conversation, messages_of
from truing.types.message import Message
from truing.types.rollout import DemonstratedText

NOTED_ROWS = 100
"""Rows whose rendering is compared with their messages."""

CUTS: dict[str, Callable[[int], slice]] = {
    "keep_start": lambda longest: slice(None, longest),
    "keep_end": lambda longest: slice(-longest, None),
}
"""What ``truncation_mode`` keeps of a text with more than ``max_length`` tokens."""


def demonstrated_texts(rows: Sequence[Row], args: SFTConfig, tokenizer: Any) -> Iterator[DemonstratedText]:
    """Yield the ids of each row that TRL trains.

    TRL predicts no token without a context: the first one, such as BOS, is not trained.

    Args:
        rows: with a conversation, or with text.
        args: TRL's, which say where a text is and how long it may be.
        tokenizer: of the model, with the template that renders conversations.
    """
    for index, row in enumerate(rows):
        content = _content(row, args.dataset_text_field)
        if isinstance(content, str):
            ended = content if content.endswith(tokenizer.eos_token) else content + tokenizer.eos_token
            ids = tokenizer(text=ended)["input_ids"]
        else:
            ids: Sequence[int] = _rendered(content, row, tokenizer)
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


def _rendered(messages: Sequence[Message], row: Row, tokenizer: Any, *, tokenize: bool = True) -> Any:
    """Return the ids of a conversation, as the chat template writes it, or its text."""
    options = {"tools": _tools(row), **(row.get("chat_template_kwargs") or {})}
    try:
        found = tokenizer.apply_chat_template([*messages], tokenize=tokenize, return_dict=tokenize, **options)
    except Exception as error:  # a template is a program from outside, compiled to Python
        raise DataError(
            "the chat template does not render a conversation",
            got=f"{type(error).__name__}: {error}; roles {', '.join(each['role'] for each in messages)}",
            remedy="change the messages, or set a tokenizer's chat template as processing_class",
        ) from error
    return found["input_ids"] if tokenize else found


def _tools(row: Row) -> list[Any] | None:
    """Return the schemas of a row's tools; TRL reads them as JSON too."""
    tools = row.get("tools") or None
    listed = json.loads(tools) if isinstance(tools, str) else tools
    return listed and [json.loads(each) if isinstance(each, str) else each for each in listed]


def dropped_note(rows: Sequence[Row], args: SFTConfig, tokenizer: Any, dataset: str) -> str:
    """Return a sentence on what the chat template leaves out of the first conversations; "" for nothing.

    TRL trains what is left, without a word.
    """
    found: dict[int, str] = {}
    for index, row in enumerate(rows[:NOTED_ROWS]):
        content = _content(row, args.dataset_text_field)
        if not isinstance(content, str):
            text = _rendered(content, row, tokenizer, tokenize=False)
            lost = [part for part, forms in _parts(content, row) if not any(form in text for form in forms)]
            if lost:
                found[index] = lost[0]
    if not found:
        return ""
    first, checked = min(found), min(len(rows), NOTED_ROWS)
    return (
        f"the chat template leaves out parts of {len(found)} of the first {checked} rows of {dataset}, which"
        f" are then not trained: in row {first} {found[first]}"
    )


def _parts(messages: Sequence[Message], row: Row) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what a conversation has, in words, and the forms in which a template may write it."""
    for spec in _tools(row) or ():
        name = spec.get("function", spec).get("name", "")
        yield f"the tool {name}", (name,)
    for message in messages:
        if isinstance(content := message.get("content"), str):
            yield f"the content of {message['role']}, {content!r:.60}", content_forms(content)
        for call in message.get("tool_calls") or ():
            name = call.get("function", call)["name"]
            yield f"the call of {name}", (name,)
