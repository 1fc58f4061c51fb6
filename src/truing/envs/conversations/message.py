"""One message of a row: its role, its content as text, its reasoning and its calls."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truing.envs.conversations.calls import read_calls
from truing.envs.conversations.loss_marks import LOSS_MARKS, read_mark
from truing.envs.conversations.place import Place
from truing.types.message import AssistantMessage, Message, ToolSpec

ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
"""Roles under other names."""

REASONING = ("reasoning_content", "thinking", "reasoning")
"""Keys of reasoning, in the order in which transformers reads them."""

TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of content parts that are text."""

REFUSED = {
    "function_call": 'write it as tool_calls: [{"function": {"name": …, "arguments": {…}}}]',
    "refusal": "write it as the content",
    **dict.fromkeys(("audio", "audios", "image", "images", "video", "videos"), "leave the row out"),
}
"""Keys of a message with a meaning that Truing has no place for, and what to do."""

EXPECTED = "a message with a role, and a content of text"
EXPECTED_CONTENT = "text, or a list of parts that are text"
KNOWN = {"role", "content", "name", "tool_call_id", "id", "tool_calls"}


@dataclass(frozen=True)
class ReadMessage:
    """A message, whether it is to be trained (None if it does not say), and sentences on its keys."""

    message: Message
    trained: bool | None
    remarks: tuple[str, ...]


def read_message(value: Any, tools: Sequence[ToolSpec], place: Place) -> ReadMessage:
    """Return one message, with the keys that a chat template may read.

    Raises:
        DataError: it cannot be used; the error names row, column and key.
    """
    if not isinstance(value, Mapping):
        raise place.error(value, EXPECTED)
    fields = {key: each for key, each in value.items() if each is not None}
    if "from" in fields and "value" in fields:  # ShareGPT
        fields = {"role": fields.pop("from"), "content": fields.pop("value")} | fields
    role = fields.pop("role", None)
    if not isinstance(role, str) or role in ("", "text"):
        raise place.error(value, f"{EXPECTED}: system, user, assistant, tool", _role_remedy(value))
    role, place = ROLES.get(role, role), place.of(f"the message of {role}")
    for key in REFUSED:
        if fields.get(key):
            raise place.of(key).error(fields[key], EXPECTED, REFUSED[key])
    trained = read_mark(fields, place)
    reasoning = _reasoning(fields, place)
    calls, remarks = read_calls(fields.pop("tool_calls", ()), tools, place)
    content = _content(fields.pop("content", None), role, bool(calls or reasoning), place)
    message = {"role": role, "content": content}
    if role == "assistant":
        message = {**AssistantMessage(content, calls, reasoning=reasoning).to_dict()}
    elif calls or reasoning:
        raise place.error(value, "calls and reasoning in messages of the assistant only")
    others = {key: each for key, each in fields.items() if key not in LOSS_MARKS}
    return ReadMessage({**message, **others}, trained, (*remarks, *_remarks(others, role)))


def _remarks(others: Mapping[str, Any], role: str) -> list[str]:
    """Return sentences on keys that only a chat template may read."""
    unknown = [key for key in others if key not in KNOWN or (key == "name" and role != "tool")]
    return [f"the key {key!r} of messages is read by a chat template only" for key in unknown]


def _reasoning(fields: dict[str, Any], place: Place) -> str:
    """Return the reasoning of a message, and take its keys out."""
    given = [(key, fields.pop(key)) for key in REASONING if key in fields]
    if not given:
        return ""
    key, value = next((each for each in given if each[1]), given[0])
    text = _text_of_parts(value) if not isinstance(value, str) else value
    if text is None:
        raise place.of(key).error(value, EXPECTED_CONTENT)
    return text if text.strip() else ""


def _content(value: Any, role: str, may_lack: bool, place: Place) -> str:
    """Return a content as text; what a tool returned is written as JSON, as in an episode."""
    if isinstance(value, str):
        return value
    if value is None:
        if role == "assistant" and may_lack:
            return ""
        raise place.of("content").error(None, EXPECTED_CONTENT, "give the message a content, or leave it out")
    if (text := _text_of_parts(value)) is not None:
        return text
    if role == "tool":
        return json.dumps(value, ensure_ascii=False)
    raise place.of("content").error(value, EXPECTED_CONTENT, "Truing trains on text: leave other parts out")


def _text_of_parts(value: Any) -> str | None:
    """Return the text of content parts; None unless all of them are text."""
    if not isinstance(value, Sequence) or not value:
        return None
    texts: list[str] = []
    for part in value:
        if not isinstance(part, Mapping):
            return None
        given = {key: each for key, each in part.items() if each is not None}
        text, kind = given.pop("text", None), given.pop("type", "text")
        given.pop("annotations", None)
        if not isinstance(text, str) or kind not in TEXT_PARTS or given:
            return None
        texts.append(text)
    return "".join(texts)


def _role_remedy(value: Mapping[str, Any]) -> str:
    """Return how to name a role."""
    if "role" in value:
        return ""
    return 'name the keys "role" and "content": dataset.map(trl.maybe_convert_to_chatml)'
