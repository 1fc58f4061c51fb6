"""Messages of an episode, the tools that a model can call, and its calls."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]
"""One chat message: ``role``, ``content`` and whatever else the chat template reads.

``reasoning_content`` is reasoning beside the content, which transformers also shows to templates that call it
``thinking``. A message of role ``text`` is text for the tokenizer: its special tokens are special tokens.

Truing adds ``lost_chars`` to a tool's message whose end was truncated, and ``cut_chars`` to a prompt's
message whose beginning was. Chat templates ignore both.
"""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is described to the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # the JSON schema of an object
    # what else describes it, such as ``return`` and ``strict``
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def schema(self) -> dict[str, Any]:
        """Return the OpenAI form, which chat templates take in ``tools=``."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function | dict(self.others)}


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool, with the model's id for it where its format has ids."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


@dataclass(frozen=True)
class AssistantMessage:
    """The policy's message of one turn, independent of the chat template."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    parse_errors: tuple[str, ...] = ()  # one error per malformed call, as it is reported to the model
    reasoning: str = (
        ""  # of a demonstration, beside its content; what the policy samples has it in its content
    )

    @classmethod
    def of(cls, message: Message) -> "AssistantMessage":
        """Return what ``to_dict`` made of a message."""
        functions = [(call["function"], call.get("id")) for call in message.get("tool_calls", ())]
        calls = tuple(ToolCall(each["name"], each["arguments"], id) for each, id in functions)
        return cls(message["content"], calls, reasoning=message.get("reasoning_content", ""))

    def to_dict(self) -> Message:
        """Return the message in the form that chat templates read; calls are numbered from 0."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id or call_id(i),
                    "type": "function",
                    "function": {"name": call.name, "arguments": dict(call.arguments)},
                }
                for i, call in enumerate(self.calls)
            ]
        return message


def with_text_arguments(message: Message) -> Message:
    """Return a message whose calls have their arguments as JSON text, for templates that write them so."""
    if "tool_calls" not in message:
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def hash_of_message(message: Message, chars: int) -> str:
    """Return a hash of a reply: its role, its call, ``chars`` of its content, and how many more it had.

    A message that was truncated says how many characters it has lost.
    """
    names = [message.get(name) for name in ("role", "name", "tool_call_id")]
    lost = message.get("lost_chars", max(len(message["content"]) - chars, 0))
    text = repr((*names, message["content"][:chars], lost))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def hash_of_outcome(outcome: Mapping[str, Any]) -> str:
    """Return a hash of an episode's final state, as JSON has it."""
    return hashlib.sha256(json.dumps(dict(outcome)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def call_id(index: int) -> str:
    """Return the id of a turn's call: nine letters and digits, as Mistral's template requires."""
    return f"call{index:05d}"


def tool_message(call: ToolCall, index: int, content: str) -> Message:
    """Return the message with a tool's result for the ``index``-th call of a turn."""
    return {"role": "tool", "name": call.name, "tool_call_id": call.id or call_id(index), "content": content}
