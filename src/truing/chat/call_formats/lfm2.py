"""LFM2 and LFM2.5: a list of calls as Python writes them, between tags."""

from truing.chat.call_formats.shared.pythonic import read_expression
from truing.chat.call_formats.shared.pythonic_grammar import call_rules
from truing.chat.call_formats.shared.scanner import CallFormat, CallRegion, Span, Tools, expect, skip
from truing.chat.constrained.lark_literals import LarkLiterals
from truing.types.message import ToolCall

BEGIN, END = "<|tool_call_start|>", "<|tool_call_end|>"


def read(text: str, at: int, _: Tools) -> CallRegion:
    """Return the calls of a list, the closing tag included."""
    calls: list[ToolCall] = []
    choices: list[Span] = []
    at = skip(text, expect(text, skip(text, at), "["))
    while not calls or not text.startswith("]", at):
        if calls:
            at = skip(text, expect(text, at, ","))
        region = read_expression(text, at)
        calls += region.calls
        choices += region.choices
        at = skip(text, region.end)
    return CallRegion(tuple(calls), tuple(choices), expect(text, skip(text, at + 1), END, "the closing tag"))


def grammar(tools: Tools, spell: LarkLiterals) -> str:
    """Return the grammar of a list of one or more calls and the closing tag."""
    calls = " | ".join(f"call{i}" for i in range(len(tools)))
    start = f'start: "[" ({calls}) (", " ({calls}))* "]" {spell(END)}'
    return "\n".join([start, *call_rules(tools, spell)])


LFM2 = CallFormat(
    description="a list of calls as in Python, [name(key='value')], between the tags of a call",
    opening=r"<\|tool_call_start\|>",
    read=read,
    closing=END,
    opening_tag=BEGIN,
    grammar=grammar,
)
