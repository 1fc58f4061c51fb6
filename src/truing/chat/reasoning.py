"""Thoughts that a prompt opens, or writes empty, for the turn that follows it."""

import re
from collections.abc import Sequence

from truing.chat.call_formats import FORMATS
from truing.types.message import Message

DEFAULT_TAGS = ("<think>", "</think>")


def reasoning_tags(tool_format: str) -> tuple[str, str]:
    """The tags of a thought, of a model that writes calls so."""
    return FORMATS[tool_format].reasoning_tags if tool_format in FORMATS else DEFAULT_TAGS


def split_reasoning(messages: Sequence[Message], tool_format: str) -> list[Message]:
    """The messages for a template that reads thoughts as ``reasoning_content`` alone."""
    opening, closing = reasoning_tags(tool_format)
    made: list[Message] = []
    for message in messages:
        content = message["content"].lstrip()
        if message["role"] == "assistant" and content.startswith(opening) and closing in content:
            thought, _, said = content.removeprefix(opening).partition(closing)
            message = {**message, "reasoning_content": thought.strip(), "content": said.lstrip("\n")}
        made.append(message)
    return made


def opened_reasoning(prompt: str, tool_format: str) -> str:
    """The tag and white space with which a prompt ends that begins the model's thought; else nothing."""
    opening, _ = reasoning_tags(tool_format)
    found = re.search(rf"{re.escape(opening)}\s*\Z", prompt)
    return found[0] if found else ""


def without_opened_reasoning(prompt: str) -> str:
    """A prompt without the thought, of any format, that it may open at its end."""
    return min((prompt.removesuffix(opened_reasoning(prompt, name)) for name in FORMATS), key=len)


def reply_start(prompt: str, whole: str, tool_format: str) -> int | None:
    """Where in a conversation the answer begins that the policy has to draw after its prompt.

    Templates write the past otherwise than they prompt: with other white space in an empty thought
    (Nemotron 3), without its opening tag (GLM-4.7), or with no empty thought at all. What the prompt says
    already is no part of the answer.

    Args:
        prompt: the conversation up to where the assistant begins to speak.
        whole: the conversation with the assistant's answer.
        tool_format: how the model writes calls.

    Returns:
        A place in ``whole``; None where it does not go on as prompted for: it has no thought where the
        prompt opens one, or has one where the prompt writes it empty.
    """
    if whole.startswith(prompt):
        return len(prompt)
    opening, closing = map(re.escape, reasoning_tags(tool_format))
    ends = re.search(rf"{opening}\s*({closing}\s*)?\Z", prompt)
    if ends is None or not whole.startswith(prompt[: ends.start()]):
        return None
    thinks = r"\s*" + opening
    closes = rf"\s*(?={closing})"
    may_begin = rf"\s*{opening}\s*{closing}\n*|(?!{thinks})" if ends[1] else f"{thinks}\\s*|{closes}"
    found = re.compile(may_begin).match(whole, ends.start())
    return found.end() if found else None
