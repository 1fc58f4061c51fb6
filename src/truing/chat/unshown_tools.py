"""Parts of a task's tools that its prompt drops.

A template may drop them with their message, or write only a part of their schemas. So each name and each
description is replaced by a marker, which is then searched in the rendered text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truing.chat.chat import Chat
from truing.errors import DataError
from truing.types.message import Message, ToolSpec

DATA = frozenset({"enum", "const", "default", "examples", "required", "type"})
"""Schema keywords that contain no schemas."""


@dataclass(frozen=True)
class ToolPart:
    """A part of a tool's description."""

    label: str
    needed: bool  # whether calls need it: the tool's and parameters' names

    def __str__(self) -> str:
        return self.label


@dataclass
class _Markers:
    """The markers and their parts."""

    parts: dict[str, ToolPart] = field(default_factory=dict[str, ToolPart])

    def tool(self, tool: ToolSpec) -> ToolSpec:
        """Return a tool with markers as names and descriptions."""
        name = self._marker(f"the tool {tool.name}", True)
        original = tool.description
        description = self._marker(f"the description of {tool.name}", True) if original.strip() else original
        return ToolSpec(name, description, self._schema(tool.parameters, tool.name, 0))

    def _marker(self, label: str, needed: bool) -> str:
        marker = f"truingtool{len(self.parts)}x"
        self.parts[marker] = ToolPart(label, needed)
        return marker

    def _schema(self, schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        names: dict[str, str] = {}
        replaced = dict(schema)
        for key, value in schema.items():
            if key == "properties" and isinstance(value, Mapping):
                names = {name: self._marker(f"{path}.{name}", depth == 0) for name in value}
                replaced[key] = {
                    names[name]: self._value(part, f"{path}.{name}", depth + 1)
                    for name, part in value.items()
                }
            elif key == "description" and isinstance(value, str) and value.strip():
                replaced[key] = self._marker(f"the description of {path}", False)
            elif key not in DATA:
                replaced[key] = self._value(value, path, depth + 1)
        if isinstance(required := schema.get("required"), list | tuple):
            replaced["required"] = [
                names.get(name, name) if isinstance(name, str) else name for name in required
            ]
        return replaced

    def _value(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._schema(value, path, depth)
        if isinstance(value, list | tuple):
            return [self._value(item, path, depth) for item in value]
        return value


def unshown_tools(chat: Chat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[ToolPart]:
    """Return the parts of tools that a prompt lacks."""
    markers = _Markers()
    specs = [markers.tool(tool) for tool in tools]
    key = repr(([(message["role"], "tool_calls" in message) for message in messages], specs))
    if key not in chat.unshown_tools:
        text = chat.render_text(messages, specs)
        chat.unshown_tools[key] = [marker for marker in markers.parts if marker not in text]
    return [markers.parts[marker] for marker in chat.unshown_tools[key]]


def refuse_unshown_tools(chat: Chat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
    """Raise if a prompt lacks a tool, its description or parameters; `truing check` reports the rest."""
    missing = [part for part in unshown_tools(chat, messages, tools) if part.needed]
    if missing:
        raise DataError(
            "the chat template leaves tools out of the prompt",
            got=f"it does not show {', '.join(map(str, missing[:5]))}; "
            f"roles {[message['role'] for message in messages]}",
            expected="every tool with its description and parameters",
            remedy="put the system message first, or set another model.chat_template",
        )
