"""Hermes: a JSON object between tags, as Qwen2.5, Qwen3, SmolLM3, Hermes and MiniMind write it."""

from dataclasses import replace

from truing.chat.call_formats.scan import CallFormat, Region, expect, read_call, skip


def read(text: str, at: int) -> Region:
    """One call and its closing tag."""
    region = read_call(text, skip(text, at), "arguments")
    return replace(region, end=expect(text, skip(text, region.end), "</tool_call>", "the closing tag"))


HERMES = CallFormat(
    form='a JSON object with the keys "name" and "arguments" between the tags tool_call and /tool_call',
    opening=r"\n?<tool_call>",
    read=read,
    closing="</tool_call>",
)
