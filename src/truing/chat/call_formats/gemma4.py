"""Gemma 4 and FunctionGemma: ``call:name{key:value}`` between tags, texts within quotes that are a token."""

import re
from typing import Any

from truing.chat.call_formats.shared.scanner import (
    DUPLICATE_KEY,
    MAX_DEPTH,
    TOO_DEEP,
    CallFormat,
    CallRegion,
    MalformedCall,
    Tools,
    Value,
    expect,
    read_value,
    skip,
    tool_call,
)

END, QUOTE = "<tool_call|>", '<|"|>'
NAME = re.compile(r"[^\s{}<>]+")
KEY = re.compile(r"[^\s{}<>:,]+")


def read(text: str, at: int, _: Tools) -> CallRegion:
    """Return one call, its closing tag included."""
    name = NAME.match(text, at)
    if name is None:
        raise MalformedCall("expected the name of a tool", at)
    values, end = _members(text, name.end(), MAX_DEPTH)
    choices = (name.span(), *(value.chosen_span for value in values.values()))
    closed = expect(text, skip(text, end), END, "the closing tag")
    return CallRegion((tool_call(name[0], values, at),), choices, closed)


def _members(text: str, at: int, levels: int) -> tuple[dict[str, Value], int]:
    """Return the members of an object, with bare or quoted keys, and the position after it."""
    members: dict[str, Value] = {}
    at = skip(text, expect(text, at, "{"))
    while not text.startswith("}", at):
        if members:
            at = skip(text, expect(text, at, ","))
        key = _text(text, at) if text.startswith(QUOTE, at) else _bare(text, at)
        if key.data in members:
            raise MalformedCall(DUPLICATE_KEY, at)
        at = skip(text, expect(text, skip(text, key.end), ":"))
        value = members[key.data] = _value(text, at, levels - 1)
        at = skip(text, value.end)
    return members, at + 1


def _value(text: str, at: int, levels: int) -> Value:
    """Return a value: a quoted text, an object, a list, or a JSON number or word."""
    if levels < 0:
        raise MalformedCall(TOO_DEEP, at)
    if text.startswith(QUOTE, at):
        return _text(text, at)
    if text.startswith("{", at):
        members, end = _members(text, at, levels)
        return Value({key: value.data for key, value in members.items()}, at, end)
    if text.startswith("None", at):  # the first templates of Gemma 4 write null so
        return Value(None, at, at + len("None"))
    if not text.startswith("[", at):
        return read_value(text, at)
    start, items = at, list[Any]()
    at = skip(text, at + 1)
    while not text.startswith("]", at):
        if items:
            at = skip(text, expect(text, at, ","))
        value = _value(text, at, levels - 1)
        items.append(value.data)
        at = skip(text, value.end)
    return Value(items, start, at + 1)


def _bare(text: str, at: int) -> Value:
    """Return a key without quotes."""
    match = KEY.match(text, at)
    if match is None:
        raise MalformedCall("expected the name of an argument", at)
    return Value(match[0], at, match.end())


def _text(text: str, at: int) -> Value:
    """Return the text between two quotes, which has no escapes."""
    start = at + len(QUOTE)
    end = text.find(QUOTE, start)
    if end < 0:
        raise MalformedCall("expected a text whose quotes end", at)
    return Value(text[start:end], at, end + len(QUOTE), len(QUOTE))


GEMMA4 = CallFormat(
    description="call:name{key:value} between the tags of a call, each text in its quotes",
    opening=r"<\|tool_call>call:",
    read=read,
    closing=END,
    reasoning_tags=("<|channel>thought", "<channel|>"),
)
