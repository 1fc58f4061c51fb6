"""DeepSeek: a block of calls between tags; V3 and R1 write the arguments as fenced JSON, V3.1 bare."""

import re

from truing.chat.call_formats.shared.scanner import (
    CallFormat,
    CallRegion,
    MalformedCall,
    Span,
    Tools,
    expect,
    read_object,
    skip,
    tool_call,
)
from truing.types.message import ToolCall

BEGIN, END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
BLOCK_BEGIN, BLOCK_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
FENCED = re.compile(r"function<｜tool▁sep｜>([^\s<`{]+)\n```json\n")
BARE = re.compile(r"([^\s<`{]+)<｜tool▁sep｜>")


def read(text: str, at: int, _: Tools) -> CallRegion:
    """Return the calls of a block, and its end."""
    calls: list[ToolCall] = []
    choices: list[Span] = []
    at = skip(text, at)
    while not calls or not text.startswith(BLOCK_END, at):
        at = expect(text, at, BEGIN, "the opening tag of a call")
        fence = FENCED.match(text, at)
        head = fence or BARE.match(text, at)
        if head is None:
            raise MalformedCall("expected the name of a tool", at)
        values, at = read_object(text, skip(text, head.end()))
        calls.append(tool_call(head[1], values, head.start()))
        choices += [head.span(1), *(value.chosen_span for value in values.values())]
        at = expect(text, skip(text, at), "```") if fence else at
        at = skip(text, expect(text, at, END, "the closing tag of the call"))
    return CallRegion(tuple(calls), tuple(choices), at + len(BLOCK_END))


DEEPSEEK = CallFormat(
    description="a name, a separator and a JSON object of arguments, between the tags of a call",
    opening=BLOCK_BEGIN,
    read=read,
    closing=BLOCK_END,
)
