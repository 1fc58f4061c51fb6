"""What is said in an episode: messages, the tools that a model is told of, and the calls that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
"""One chat message: ``role``, ``content`` and whatever else the chat template reads.

Truing adds ``lost_chars`` to a tool's message whose end was cut, ``cut_chars`` to a prompt's whose
beginning was, and templates ignore both.
"""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # the JSON schema of an object

    def schema(self) -> dict[str, Any]:
        """What chat templates take in ``tools=``: the OpenAI form, which all of them read."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool, with the id that the model gave it where its format has ids."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


@dataclass(frozen=True)
class AssistantMessage:
    """What the policy says in one turn, apart from how its template writes it."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    parse_errors: tuple[str, ...] = ()  # calls that could not be read, each as the model will be told

    def to_dict(self) -> Message:
        """The assistant's message, in the form that chat templates read; calls are numbered from 0."""
        if not self.calls:
            return {"role": "assistant", "content": self.content}
        calls = [
            {
                "id": call.id or call_id(i),
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for i, call in enumerate(self.calls)
        ]
        return {"role": "assistant", "content": self.content, "tool_calls": calls}


def call_id(index: int) -> str:
    """The id of a turn's call: nine letters and digits, since Mistral's template takes nothing else."""
    return f"call{index:05d}"


def tool_message(call: ToolCall, index: int, content: str) -> Message:
    """What a tool answered to a call, the ``index``-th of its turn."""
    return {"role": "tool", "name": call.name, "tool_call_id": call.id or call_id(index), "content": content}
