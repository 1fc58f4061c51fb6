"""Llama 3.1 to 3.3: an answer that is one JSON object, or ``<|python_tag|>`` and a call."""

import re
from dataclasses import replace

from truing.chat.call_formats.shared.pythonic import read_expression
from truing.chat.call_formats.shared.scanner import (
    CallFormat,
    CallRegion,
    MalformedCall,
    Tools,
    read_call,
    skip,
)

OPENING = r"<\|python_tag\|>|(?:\A|(?<=</think>))[ \t\n\r]*(?=\{[ \t\n\r]*\"(?:name|parameters)\")"
NAME = re.compile(r"([A-Za-z_][\w.-]*?)(?:\.call)?\(")
"""Llama calls its built-in tools as ``name.call(…)``."""


def read(text: str, at: int, _: Tools) -> CallRegion:
    """Return the call, which must end the turn."""
    at = skip(text, at)
    json = text.startswith("{", at)
    region = read_call(text, at, "parameters") if json else read_expression(text, at, NAME)
    end = skip(text, region.end)
    if end < len(text):
        raise MalformedCall("text follows the call", end)
    return replace(region, end=end)


LLAMA3 = CallFormat(
    description='one JSON object with the keys "name" and "parameters", and nothing else',
    opening=OPENING,
    read=read,
    closing=None,
)
