"""Reasoning that a prompt opens, or writes empty, for the next turn."""

import re
from collections.abc import Sequence

from truing.chat.call_formats import FORMATS
from truing.types.message import Message

DEFAULT_TAGS = ("<think>", "</think>")


def reasoning_tags(tool_format: str) -> tuple[str, str]:
    """Return the reasoning tags of a model with this call format."""
    return FORMATS[tool_format].reasoning_tags if tool_format in FORMATS else DEFAULT_TAGS


def split_reasoning(messages: Sequence[Message], tool_format: str) -> list[Message]:
    """Return the messages for a template that reads reasoning from ``reasoning_content`` only."""
    opening, closing = reasoning_tags(tool_format)
    converted: list[Message] = []
    for message in messages:
        content = message["content"].lstrip()
        if message["role"] == "assistant" and content.startswith(opening) and closing in content:
            reasoning, _, answer = content.removeprefix(opening).partition(closing)
            message = {**message, "reasoning_content": reasoning.strip(), "content": answer.lstrip("\n")}
        converted.append(message)
    return converted


def opened_reasoning(prompt: str, tool_format: str) -> str:
    """Return the opening reasoning tag and white space at the end of a prompt; else an empty text."""
    opening, _ = reasoning_tags(tool_format)
    match = re.search(rf"{re.escape(opening)}\s*\Z", prompt)
    return match[0] if match else ""


def without_opened_reasoning(prompt: str) -> str:
    """Return a prompt without the reasoning tag, of any format, that it may open at its end."""
    return min((prompt.removesuffix(opened_reasoning(prompt, name)) for name in FORMATS), key=len)


def reply_start(prompt: str, conversation: str, tool_format: str) -> int | None:
    """Return where in a conversation the answer begins that the policy samples after its prompt.

    Templates render a past answer differently from the generation prompt: with other white space in empty
    reasoning (Nemotron 3), without its opening tag (GLM-4.7), or without empty reasoning. Text of the prompt
    is not part of the answer.

    Args:
        prompt: the conversation with the generation prompt.
        conversation: the conversation with the assistant's answer.
        tool_format: the call format.

    Returns:
        A position in ``conversation``; None if it does not continue the prompt: it has no reasoning but the
        prompt opens it, or it has reasoning but the prompt writes it empty.
    """
    if conversation.startswith(prompt):
        return len(prompt)
    opening, closing = map(re.escape, reasoning_tags(tool_format))
    opened = re.search(rf"{opening}\s*({closing}\s*)?\Z", prompt)
    if opened is None or not conversation.startswith(prompt[: opened.start()]):
        return None
    opens = r"\s*" + opening
    closes = rf"\s*(?={closing})"
    may_begin = rf"\s*{opening}\s*{closing}\n*|(?!{opens})" if opened[1] else f"{opens}\\s*|{closes}"
    match = re.compile(may_begin).match(conversation, opened.start())
    return match.end() if match else None
