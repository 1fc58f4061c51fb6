"""What a tool call may look like, as a grammar in the Lark dialect of llguidance.

A grammar tells of one call from the end of its opening tag on. What a turn says outside its calls is free.
"""

import json
from collections.abc import Sequence

from truing.errors import RecipeError
from truing.messages import ToolSpec

OPENING, CLOSING = "<tool_call>", "</tool_call>"

FORM = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as chat templates write it; were white space free, a random policy might write it for ever."""


def check_constrainable(tool_format: str) -> None:
    """Raise unless calls of this format can be held to a grammar."""
    if tool_format != "hermes":
        raise RecipeError(
            "calls of this model's format cannot be held to a grammar yet",
            got=f'episode.grammar = "calls" with the format {tool_format!r}',
            expected="the format 'hermes'",
            remedy='set episode.grammar = "off", or chat.tool_prompt = "hermes", which asks for it',
        )


def call_grammar(tools: Sequence[ToolSpec], closing: str) -> str:
    """The grammar of one call in the form of Hermes: the name of a tool, then arguments by its schema.

    Args:
        tools: what may be called, each with a JSON schema that stays a document of its own.
        closing: the closing tag in Lark: quoted text, or ``<[id]>`` where it is one added token.
    """
    lines = [f"start: {json.dumps(_NAME)} ({' | '.join(f'tool{i}' for i in range(len(tools)))}) {closing}"]
    for i, tool in enumerate(tools):
        name = json.dumps(tool.name, ensure_ascii=False)[1:]  # its opening quote stands in _NAME
        lines.append(f"tool{i}: {_quoted(name + _ARGUMENTS)} arguments{i} {_quoted(_END)}")
        lines.append(f"arguments{i}: %json {json.dumps({'x-guidance': FORM, **_closed(tool)})}")
    return "\n".join(lines)


_NAME = '\n{"name": "'
_ARGUMENTS = ', "arguments": '
_END = "}\n"


def _quoted(text: str) -> str:
    """A text as Lark quotes it, which is how JSON does."""
    return json.dumps(text, ensure_ascii=False)


def _closed(tool: ToolSpec) -> dict[str, object]:
    """The schema of a tool's arguments: keys that it does not name are written only where it says so."""
    if "properties" in tool.parameters:
        return {"additionalProperties": False, **tool.parameters}
    return dict(tool.parameters)
