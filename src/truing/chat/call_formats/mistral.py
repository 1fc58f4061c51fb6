"""Mistral: ``[TOOL_CALLS]`` and a list of objects, or, in newer models, a name and its arguments."""

import re

from truing.chat.call_formats.shared.scanner import (
    CallFormat,
    CallRegion,
    MalformedCall,
    Span,
    Tools,
    expect,
    read_call,
    read_object,
    skip,
    tool_call,
)
from truing.types.message import ToolCall

NAME = re.compile(r"[^\s\[\]{}\"]+")


def read(text: str, at: int, _: Tools) -> CallRegion:
    """Return the calls after ``[TOOL_CALLS]``, in either form."""
    at = skip(text, at)
    return _call_list(text, at + 1) if text.startswith("[", at) else _named_call(text, at)


def _call_list(text: str, at: int) -> CallRegion:
    """Return the calls of the older form: one list, each call with an id invented by the model."""
    calls: list[ToolCall] = []
    choices: list[Span] = []
    while True:
        region = read_call(text, skip(text, at), "arguments", may_have_id=True)
        calls += region.calls
        choices += region.choices
        at = skip(text, region.end)
        if text.startswith("]", at):
            return CallRegion(tuple(calls), tuple(choices), at + 1)
        at = expect(text, at, ",")


def _named_call(text: str, at: int) -> CallRegion:
    """Return the call of the newer form: ``[ARGS]`` or nothing between name and arguments."""
    name = NAME.match(text, at)
    if name is None:
        raise MalformedCall("expected a list of calls, or the name of a tool", at)
    at = name.end()
    if text.startswith("[", at):
        at = expect(text, at, "[ARGS]", "arguments")
    values, end = read_object(text, skip(text, at))
    choices = (name.span(), *(value.chosen_span for value in values.values()))
    return CallRegion((tool_call(name[0], values, at),), choices, end)


MISTRAL = CallFormat(
    description='a list of JSON objects with the keys "name" and "arguments", or a name and its arguments',
    opening=r" ?\[TOOL_CALLS\]",
    read=read,
    closing=None,
)
