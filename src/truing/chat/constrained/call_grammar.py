"""Grammars of tool calls, in the Lark dialect of llguidance.

A grammar describes one call from the end of its opening tag on; ``call_formats/`` has one for each format
with such a tag. Text outside calls is free.
"""

from truing.chat.call_formats import FORMATS
from truing.chat.call_formats.shared.scanner import Tools
from truing.chat.constrained.lark_literals import LarkLiterals
from truing.errors import RecipeError


def check_constrainable(tool_format: str) -> None:
    """Raise unless this format has a grammar."""
    constrainable = [name for name, format in FORMATS.items() if format.grammar is not None]
    if tool_format not in constrainable:
        raise RecipeError(
            "calls of this model's format cannot be held to a grammar yet",
            got=f'episode.grammar = "calls" with the format {tool_format!r}',
            expected=f"one of the formats {', '.join(constrainable)}",
            remedy='set episode.grammar = "off", or chat.tool_prompt = "hermes", which asks for it',
        )


def call_grammar(tool_format: str, tools: Tools, spell: LarkLiterals) -> str:
    """Return the grammar of one call of these tools, each with a JSON schema for its arguments."""
    format_grammar = FORMATS[tool_format].grammar
    assert format_grammar is not None  # check_constrainable raises first
    return format_grammar(tools, spell)
