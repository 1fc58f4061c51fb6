"""Llama 3.1 to 3.3: an answer that is one JSON object, or ``<|python_tag|>`` and a call."""

import re
from dataclasses import replace

from truing.chat.call_formats.scan import (
    CallFormat,
    Malformed,
    Region,
    Value,
    expect,
    read_call,
    read_value,
    skip,
    tool_call,
)

OPENING = r"<\|python_tag\|>|(?:\A|(?<=</think>))[ \t\n\r]*(?=\{[ \t\n\r]*\"(?:name|parameters)\")"
NAME = re.compile(r"([A-Za-z_][\w.-]*?)(?:\.call)?\(")
KEY = re.compile(r"([A-Za-z_]\w*)[ \t\n\r]*=")
WORD = re.compile(r"(True|False|None)\b")
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*+)'", re.DOTALL)
WORDS = {"True": True, "False": False, "None": None}


def read(text: str, at: int) -> Region:
    """The call, which is all that the turn may still say."""
    at = skip(text, at)
    region = read_call(text, at, "parameters") if text.startswith("{", at) else _python(text, at)
    end = skip(text, region.end)
    if end < len(text):
        raise Malformed("text follows the call", end)
    return replace(region, end=end)


def _python(text: str, at: int) -> Region:
    """``name(key=value, …)`` or ``name.call(…)``."""
    name = NAME.match(text, at)
    if name is None:
        raise Malformed("expected a JSON object, or name(key=value)", at)
    values: dict[str, Value] = {}
    at = skip(text, name.end())
    while not text.startswith(")", at):
        if values:
            at = skip(text, expect(text, at, ","))
        key = KEY.match(text, at)
        if key is None or key[1] in values:
            raise Malformed("expected each argument once, as key=value", at)
        values[key[1]] = _python_value(text, skip(text, key.end()))
        at = skip(text, values[key[1]].end)
    choices = (name.span(1), *(value.choice for value in values.values()))
    return Region((tool_call(name[1], values, name.start()),), choices, at + 1)


def _python_value(text: str, at: int) -> Value:
    """A value as JSON has it, one of Python's three words, or a text in single quotes."""
    word, quoted = WORD.match(text, at), QUOTED.match(text, at)
    if word:
        return Value(WORDS[word[1]], at, word.end())
    if quoted is None:
        return read_value(text, at)
    swapped = re.sub(r'\\.|"', lambda sign: {"\\'": "'", '"': '\\"'}.get(sign[0], sign[0]), quoted[1])
    try:
        return Value(read_value(f'"{swapped}"', 0).data, at, quoted.end())
    except Malformed as error:
        raise Malformed(str(error), at) from error


LLAMA3 = CallFormat(
    form='one JSON object with the keys "name" and "parameters", and nothing else',
    opening=OPENING,
    read=read,
    closing=None,
)
