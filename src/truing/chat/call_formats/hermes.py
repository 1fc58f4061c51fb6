"""Hermes: a JSON object between tags, as Qwen2.5, Qwen3, SmolLM3, Hermes and MiniMind write it."""

import json
from dataclasses import replace

from truing.chat.call_formats.shared.scanner import CallFormat, CallRegion, Tools, expect, read_call, skip
from truing.chat.call_formats.shared.schema_grammar import closed_schema, json_rule
from truing.chat.constrained.lark_literals import LarkLiterals

BEGIN, END = "<tool_call>", "</tool_call>"


def read(text: str, at: int, _: Tools) -> CallRegion:
    """Return one call, its closing tag included."""
    region = read_call(text, skip(text, at), "arguments")
    return replace(region, end=expect(text, skip(text, region.end), END, "the closing tag"))


def grammar(tools: Tools, spell: LarkLiterals) -> str:
    """Return the grammar of a tool's name and its arguments; the schema stays a document of its own."""
    calls = " | ".join(f"tool{i}" for i in range(len(tools)))
    lines = [f"start: {spell(_NAME)} ({calls}) {spell(END)}"]
    for i, tool in enumerate(tools):
        name = json.dumps(tool.name, ensure_ascii=False)[1:]  # _NAME holds its opening quote
        lines.append(f"tool{i}: {spell(name + _ARGUMENTS)} arguments{i} {spell(_END)}")
        lines.append(f"arguments{i}: {json_rule(closed_schema(tool))}")
    return "\n".join(lines)


_NAME = '\n{"name": "'
_ARGUMENTS = ', "arguments": '
_END = "}\n"

HERMES = CallFormat(
    description='a JSON object with the keys "name" and "arguments"'
    " between the tags tool_call and /tool_call",
    opening=rf"\n?{BEGIN}",
    read=read,
    closing=END,
    opening_tag=BEGIN,
    grammar=grammar,
)
