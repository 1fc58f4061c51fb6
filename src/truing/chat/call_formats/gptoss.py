"""gpt-oss: harmony messages, of which those to ``functions.…`` are calls."""

import re

from truing.chat.call_formats.shared.scanner import (
    CallFormat,
    CallRegion,
    MalformedCall,
    Tools,
    expect,
    read_object,
    skip,
    tool_call,
)

OPENING = r"(?:\A|<\|start\|>assistant)(?:<\|channel\|>(?:commentary|analysis))? to=functions\."
NAME = re.compile(r"[^\s<]+")
REST = re.compile(r"(?:<\|channel\|>(?:commentary|analysis))? ?(?:<\|constrain\|>)?(?:json)?<\|message\|>")
FINAL = "<|channel|>final<|message|>"
GLUE = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>\w+<\|message\|>|<\|(?:end|return|call)\|>")


def read(text: str, at: int, _: Tools) -> CallRegion:
    """Return a call: a name, the rest of the header, and arguments up to ``<|call|>``, the stop token."""
    name = NAME.match(text, at)
    header = name and REST.match(text, name.end())
    if name is None or header is None:
        raise MalformedCall("expected the name of a tool and the end of the header", at)
    values, end = read_object(text, skip(text, header.end()))
    end = skip(text, end)
    if end < len(text):
        end = expect(text, end, "<|call|>", "the end of the message")
    choices = (name.span(), *(value.chosen_span for value in values.values()))
    return CallRegion((tool_call(name[0], values, at),), choices, end)


def content(outside: str) -> str:
    """Return the final message, else the analysis: the template renders only one of them."""
    return GLUE.sub("", outside.rpartition(FINAL)[2])


GPTOSS = CallFormat(
    description="a message on the commentary channel to functions.name, whose text is a JSON object",
    opening=OPENING,
    read=read,
    closing="<|call|>",
    content=content,
)
