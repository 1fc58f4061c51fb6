"""Calls and values as Python writes them, or JSON: ``f(x='a', y=[1, None], z={"k": true})``."""

import json
import re
from collections.abc import Mapping
from typing import Any

from truing.chat.call_formats.shared.scanner import (
    DUPLICATE_KEY,
    MAX_DEPTH,
    TOO_DEEP,
    CallRegion,
    MalformedCall,
    Value,
    expect,
    read_value,
    skip,
    tool_call,
)

NAME = re.compile(r"([^\W\d][\w.-]*)\(")
KEY = re.compile(r"([^\W\d][\w.$-]*)[ \t\n\r]*=")
WORD = re.compile(r"(True|False|None)\b")
WORDS = {"True": True, "False": False, "None": None}
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*+)'|\"((?:[^\"\\]|\\.)*+)\"", re.DOTALL)
AS_JSON = re.compile(r"\\x[0-9a-fA-F]{2}|\\.|\"", re.DOTALL)
"""Escapes that Python strings write differently from JSON."""

_DECODER = json.JSONDecoder(strict=False)
"""Templates without escapes write a new line literally."""


def read_expression(text: str, at: int, name: re.Pattern[str] = NAME) -> CallRegion:
    """Return the call ``f(key=value, …)``; the first group of ``name`` is the tool."""
    head = name.match(text, at)
    if head is None:
        raise MalformedCall("expected name(key=value)", at)
    values: dict[str, Value] = {}
    at = skip(text, head.end())
    while not text.startswith(")", at):
        if values:
            at = skip(text, expect(text, at, ","))
        key = KEY.match(text, at)
        if key is None or key[1] in values:
            raise MalformedCall("expected each argument once, as key=value", at)
        values[key[1]] = read_literal(text, skip(text, key.end()))
        at = skip(text, values[key[1]].end)
    choices = (head.span(1), *(value.chosen_span for value in values.values()))
    return CallRegion((tool_call(head[1], values, head.start()),), choices, at + 1)


def read_literal(text: str, at: int, levels: int = MAX_DEPTH) -> Value:
    """Return a Python or JSON value; one value may mix both."""
    if levels < 0:
        raise MalformedCall(TOO_DEEP, at)
    if constant := WORD.match(text, at):
        return Value(WORDS[constant[1]], at, constant.end())
    if text.startswith(("'", '"'), at):
        return _text(text, at)
    if text.startswith("[", at):
        items, end = _items(text, at, "]", levels)
        return Value([item for _, item in items], at, end)
    if text.startswith("{", at):
        items, end = _items(text, at, "}", levels)
        return Value(dict(items), at, end)
    return read_value(text, at)


def _items(text: str, at: int, closing: str, levels: int) -> tuple[list[tuple[Any, Any]], int]:
    """Return the items of a list or object, with keys if it has them, and the position after them."""
    items: list[tuple[Any, Any]] = []
    keys = set[str]()
    at = skip(text, at + 1)
    while not text.startswith(closing, at):
        if items:
            at = skip(text, expect(text, at, ","))
        key = ""
        if closing == "}":
            key_value = _text(text, at)
            if key_value.data in keys:
                raise MalformedCall(DUPLICATE_KEY, at)
            keys.add(key := key_value.data)
            at = skip(text, expect(text, skip(text, key_value.end), ":"))
        value = read_literal(text, at, levels - 1)
        items.append((key, value.data))
        at = skip(text, value.end)
    return items, at + 1


def _text(text: str, at: int) -> Value:
    """Return a text in single or double quotes, with Python or JSON escapes."""
    match = QUOTED.match(text, at)
    if match is None:
        raise MalformedCall("expected a text in quotes that end", at)
    body = match[1] if match[2] is None else match[2]
    try:
        return Value(_DECODER.decode(f'"{AS_JSON.sub(_as_json, body)}"'), at, match.end())
    except json.JSONDecodeError as error:
        raise MalformedCall(f"not a text: {error.msg}", at) from error


def _as_json(match: re.Match[str]) -> str:
    """Return an escape or a double quote in JSON form."""
    if match[0].startswith("\\x"):
        return f"\\u00{match[0][2:]}"
    return SIGNS.get(match[0], match[0])


SIGNS: Mapping[str, str] = {"\\'": "'", '"': '\\"', "\\\n": ""}
