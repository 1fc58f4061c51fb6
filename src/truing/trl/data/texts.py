"""Rows that TRL trains as a whole: plain text, and conversations with the loss on every token."""

import datetime
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from truing.chat.apply_template import check_template_kwargs
from truing.chat.render import content_forms
from truing.envs.conversations import Conversation
from truing.errors import DataError, ModelError
from truing.trl.arguments.configs import SFTConfig
from truing.types.message import AssistantMessage, with_text_arguments
from truing.types.rollout import DemonstratedText
from truing.utils.render_template import TemplateFault, render_template

NOTED_ROWS = 100
"""Rows whose rendering is compared with their messages."""

CUTS: dict[str, Callable[[int], slice]] = {
    "keep_start": lambda longest: slice(None, longest),
    "keep_end": lambda longest: slice(-longest, None),
}
"""What ``truncation_mode`` keeps of a text with more than ``max_length`` tokens."""

TURNS = "assistant_only_loss=True trains turns, each with its reasoning, and leaves out those that are marked"


def demonstrated_texts(
    rows: Sequence[Conversation], args: SFTConfig, tokenizer: Any, date: datetime.date | None = None
) -> Iterator[DemonstratedText]:
    """Yield the ids of each row that TRL trains.

    TRL predicts no token without a context: the first one, such as BOS, is not trained.

    Args:
        rows: conversations, or texts.
        args: TRL's, which say how long a text may be.
        tokenizer: of the model, with the template that renders conversations.
        date: of the run, for a template that writes today's.
    """
    for row in rows:
        if row.untrained:
            raise DataError(
                f"{row.where} marks a message as not to be trained, and whole conversations are trained",
                got=", ".join(f"message {i + 1} ({row.messages[i]['role']})" for i in sorted(row.untrained)),
                expected="no such mark (weight, loss, loss_mask, train, …)",
                remedy=TURNS,
            )
        if row.is_text:
            content = "".join(message["content"] for message in row.messages)
            ended = content if content.endswith(tokenizer.eos_token) else content + tokenizer.eos_token
            ids = tokenizer(text=ended)["input_ids"]
        else:
            text = rendered(row, tokenizer, date=date)
            _check_reasoning(row, text)
            ids: Sequence[int] = tokenizer(text=text, add_special_tokens=False)["input_ids"]
        if args.max_length is not None:
            ids = ids[CUTS[args.truncation_mode](args.max_length)]
        if len(ids) < 2:
            raise DataError(
                f"{row.where} has no token to train",
                got=f"{[message['content'] for message in row.messages]!r:.100}",
                expected="at least two tokens: the first one has no context to be predicted from",
                remedy="leave the row out: dataset.filter",
            )
        yield DemonstratedText(tuple(ids), context=1)


def rendered(
    row: Conversation, tokenizer: Any, template: str | None = None, date: datetime.date | None = None
) -> str:
    """Return a conversation as the chat template writes it; it is the tokenizer's if not given.

    A template that writes arguments as they are, such as that of DeepSeek V3, gets them as JSON text.
    """
    options = {"tools": [tool.schema() for tool in row.tools] or None, **row.template_kwargs}
    if template is not None:
        options["chat_template"] = template
    try:
        check_template_kwargs(tokenizer, row.template_kwargs, template, "chat_template_kwargs")
        return render_template(tokenizer, row.messages, date, **options)
    except ModelError as error:
        raise error.of(row.where) from error
    except TemplateFault as error:
        with suppress(TemplateFault):
            return render_template(tokenizer, [*map(with_text_arguments, row.messages)], date, **options)
        raise DataError(
            f"the chat template does not render {row.where}",
            got=f"{error}; roles {', '.join(message['role'] for message in row.messages)}",
            expected="a conversation that it can write",
            remedy="change the messages, or set a tokenizer's chat template as processing_class",
        ) from error


def _check_reasoning(row: Conversation, text: str) -> None:
    """Raise if the text of a row has none of its reasoning: it would train answers without it."""
    thoughts = [message["reasoning_content"] for message in row.messages if "reasoning_content" in message]
    if thoughts and not any(form in text for thought in thoughts for form in content_forms(thought)):
        raise DataError(
            f"the chat template leaves the reasoning of {row.where} out",
            got=f"reasoning_content = {thoughts[-1]!r:.100}",
            expected="a template that writes reasoning_content of the last turn",
            remedy=f"{TURNS}; else write it into the content, as <think>…</think>, or set chat_template_path",
        )


def dropped_note(rows: Sequence[Conversation], tokenizer: Any, dataset: str) -> str:
    """Return a sentence on what the chat template leaves out of the first conversations; "" for nothing.

    TRL trains what is left, without a word.
    """
    found: dict[int, str] = {}
    for index, row in enumerate(rows[:NOTED_ROWS]):
        if not row.is_text:
            text = rendered(row, tokenizer)
            lost = [part for part, forms in _parts(row) if not any(form in text for form in forms)]
            if lost:
                found[index] = lost[0]
    if not found:
        return ""
    first, checked = min(found), min(len(rows), NOTED_ROWS)
    return (
        f"the chat template leaves out parts of {len(found)} of the first {checked} rows of {dataset}, which"
        f" are then not trained: in row {first} {found[first]}"
    )


def _parts(row: Conversation) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what a conversation has, in words, and the forms in which a template may write it."""
    for tool in row.tools:
        yield f"the tool {tool.name}", (tool.name,)
    for message in row.messages:
        for name, key in (("content", "content"), ("reasoning", "reasoning_content")):
            if text := message.get(key):
                yield f"the {name} of {message['role']}, {text!r:.60}", content_forms(text)
        for call in AssistantMessage.of(message).calls:
            yield f"the call of {call.name}", (call.name,)
            for key in call.arguments:
                yield f"the argument {key!r} of a call of {call.name}", (key,)
