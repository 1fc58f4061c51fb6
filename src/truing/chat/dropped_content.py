"""Parts of messages that a chat template drops.

Templates silently drop parts: the second call of a turn, text next to a call, a message with an unexpected
role. So each part is replaced by a unique marker, which is then searched in the rendered text. This works for
any template.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truing.chat.chat import Chat
from truing.chat.reasoning import reasoning_tags
from truing.errors import DataError
from truing.types.message import AssistantMessage, Message, ToolSpec

REASONING = "the reasoning"

FIRST_NUMBER = 7358113
"""The first number of the markers for numbers."""


@dataclass(frozen=True)
class ContentPart:
    """A part of a message, and its marker."""

    message: int
    role: str
    name: str
    marker: str
    is_reasoning: bool = False
    call: str = ""  # of an argument: the marker of its call's name

    def __str__(self) -> str:
        return f"{self.name} of message {self.message + 1} ({self.role})"


@dataclass
class MarkedMessages:
    """Messages whose parts are all markers; ``tags`` open and close reasoning."""

    tags: tuple[str, str]
    messages: list[Message] = field(default_factory=list[Message])
    parts: list[ContentPart] = field(default_factory=list[ContentPart])

    def add(self, message: Message) -> None:
        """Add a message with markers."""
        calls = [self._call(i, call) for i, call in enumerate(message.get("tool_calls") or ())]
        marked = {**message, "content": self._content(message)}
        if "reasoning_content" in message:
            marked["reasoning_content"] = self._marker(message["role"], REASONING, thought=True)
        self.messages.append(marked | ({"tool_calls": calls} if calls else {}))

    def _marker(self, role: str, name: str, *, thought: bool = False, call: str = "") -> str:
        marker = f"truing{len(self.parts)}x"
        self.parts.append(ContentPart(len(self.messages), role, name, marker, thought, call))
        return marker

    def _content(self, message: Message) -> str:
        role, content = message["role"], message["content"]
        opening, closing = map(re.escape, self.tags)
        form = rf"(\s*{opening})?(.*?)({closing}\s*)(.*)"
        match = re.fullmatch(form, content, re.DOTALL) if role == "assistant" else None
        if match is None:
            return self._marker(role, "the text") if content.strip() else content
        tag_open, inner, tag_close, text = match.groups(default="")
        inner = f"\n{self._marker(role, REASONING, thought=True)}\n" if inner.strip() else inner
        return tag_open + inner + tag_close + (self._marker(role, "the text") if text.strip() else text)

    def _call(self, index: int, call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = call["function"]
        name = f"call {index + 1} ({function['name']})"
        marker = self._marker("assistant", name)
        arguments = {
            key: self._value(f"the argument {key!r} of {name}", marker, value)
            for key, value in function["arguments"].items()
        }
        return {**call, "function": {"name": marker, "arguments": arguments}}

    def _value(self, name: str, call: str, value: Any) -> Any:
        """Return a value of the same type, its texts and numbers markers; true, false and null have none."""
        if isinstance(value, Mapping):
            return {key: self._value(name, call, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._value(name, call, item) for item in value]
        if isinstance(value, str):
            return self._marker("assistant", name, call=call) if value.strip() else value
        if isinstance(value, bool) or value is None:
            return value
        number = FIRST_NUMBER + len(self.parts)
        self.parts.append(ContentPart(len(self.messages), "assistant", name, str(number), call=call))
        return number if isinstance(value, int) else number + 0.5


def dropped_parts(
    chat: Chat, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, prompt: bool = True
) -> list[ContentPart]:
    """Return the parts of messages that are missing from the rendered text.

    Reasoning is searched in the last message only: many templates drop earlier reasoning by design.

    Args:
        chat: the chat of the model.
        messages: their texts, calls and answers are searched.
        tools: shown to the model.
        prompt: whether to add the generation prompt.
    """
    marked = MarkedMessages(reasoning_tags(chat.tool_format))
    for message in messages:
        marked.add(message)
    key = (repr(marked.messages), bool(tools), prompt)
    if key not in chat.dropped_parts_cache:
        text = chat.render_text(marked.messages, tools, prompt=prompt)
        chat.dropped_parts_cache[key] = [part.marker for part in marked.parts if part.marker not in text]
    dropped, last = chat.dropped_parts_cache[key], len(messages) - 1
    return [
        part
        for part in marked.parts
        if part.marker in dropped and (not part.is_reasoning or part.message == last)
    ]


def check_prompt_shown(chat: Chat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
    """Raise if a prompt lacks a part of its messages.

    Some templates drop earlier assistant messages by design; `truing check` reports that.
    """
    dropped = [
        part
        for part in dropped_parts(chat, messages, tools)
        if part.name != "the text" or part.role != "assistant"
    ]
    if dropped:
        raise DataError(
            "the chat template leaves a part of the prompt out",
            got=f"it does not show {describe_parts(dropped)}; "
            f"roles {[message['role'] for message in messages]}",
            expected="every message in the prompt",
            remedy="change the messages of the task, or set a model.chat_template that shows them",
        )


def check_reply_written(
    chat: Chat, messages: Sequence[Message], reply: AssistantMessage, tools: Sequence[ToolSpec]
) -> None:
    """Raise if the template drops a part of a demonstrated turn."""
    conversation = [*messages, reply.to_dict()]
    dropped = [
        part
        for part in dropped_parts(chat, conversation, tools, prompt=False)
        if part.message == len(messages)
    ]
    if dropped:
        raise DataError(
            "the chat template drops a part of a demonstrated turn",
            got=f"it drops {describe_parts(dropped)}",
            expected="every text, reasoning, call and argument of the turn",
            remedy=REMEDIES[any(part.is_reasoning for part in dropped)],
        )


REMEDIES = {
    False: "demonstrate only what it can write (one call per turn, no text next to a call), or set"
    ' chat.tool_prompt = "hermes", with which Truing writes text and calls itself',
    True: "set a model.chat_template that writes reasoning_content, or write the reasoning into the content,"
    " as <think>…</think>",
}
"""What to do about a part of a turn that a template drops, by whether it is reasoning."""


def describe_parts(parts: Sequence[ContentPart]) -> str:
    """Return parts as text, each once; a missing call includes its arguments."""
    markers = {part.marker for part in parts}
    return ", ".join(dict.fromkeys(str(part) for part in parts if part.call not in markers))
