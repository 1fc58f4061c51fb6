"""The tool prompt that Truing supplies for chat templates without tools (SmolLM2's drops them).

It asks for calls in the format of Hermes and Qwen. It is part of the chat that SFT, RL, evaluation and export
share.
"""

import json
from collections.abc import Sequence
from typing import Literal

from truing.types.message import Message, ToolSpec

ToolPrompt = Literal["hermes", "brief"]

HERMES = """# Tools

You may call one or more functions to help with the request. Their signatures:
<tools>
{tools}
</tools>

For each call, write a JSON object with the function's name and arguments within <tool_call></tool_call>:
<tool_call>
{{"name": "function", "arguments": {{"key": "value"}}}}
</tool_call>"""

BRIEF = """Tools:
{tools}
Call one so:
<tool_call>
{{"name": "tool", "arguments": {{"key": "value"}}}}
</tool_call>"""


def with_tool_prompt(
    messages: Sequence[Message], tools: Sequence[ToolSpec], style: ToolPrompt
) -> list[Message]:
    """Return messages for a template without tools: schemas in the system message, calls as text."""
    as_text = [_as_text(message) for message in messages]
    if tools:
        description = _describe(tools, style)
        system = as_text.pop(0)["content"] + "\n\n" if as_text and as_text[0]["role"] == "system" else ""
        as_text.insert(0, {"role": "system", "content": system + description})
    merged: list[Message] = []
    for message in as_text:
        # answers to several calls of one turn share one message, as in Qwen's template
        if merged and message.get("answers") and merged[-1].get("answers"):
            message = {**message, "content": merged.pop()["content"] + "\n" + message["content"]}
        merged.append(message)
    return [{"role": message["role"], "content": message["content"]} for message in merged]


def without_system(messages: Sequence[Message]) -> list[Message]:
    """Return messages for a template without a system role: it is prepended to the first user message."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, *others = messages
    if not others or others[0]["role"] != "user":
        return [{**system, "role": "user"}, *others]
    return [{**others[0], "content": f"{system['content']}\n\n{others[0]['content']}"}, *others[1:]]


def without_orphan_tool_messages(messages: Sequence[Message]) -> list[Message]:
    """Return messages for a template that ties tool messages to calls: the user answers malformed ones."""
    converted: list[Message] = []
    has_calls = stray = False
    for message in messages:
        has_calls = "tool_calls" in message if message["role"] == "assistant" else has_calls
        previous_stray, stray = stray, message["role"] == "tool" and not has_calls
        if stray:
            before = converted.pop()["content"] + "\n" if previous_stray else ""
            message = {"role": "user", "content": before + message["content"]}
        converted.append(message)
    return converted


def _describe(tools: Sequence[ToolSpec], style: ToolPrompt) -> str:
    """Return the system message's text about tools."""
    if style == "hermes":
        lines = [json.dumps(tool.schema(), ensure_ascii=False) for tool in tools]
        return HERMES.format(tools="\n".join(lines))
    lines = [
        f"{tool.name}({', '.join(tool.parameters.get('properties', {}))}): {tool.description}"
        for tool in tools
    ]
    return BRIEF.format(tools="\n".join(lines))


def _as_text(message: Message) -> Message:
    """Return a message with its calls, or its answer to one, in its content."""
    if message["role"] == "tool":
        return {
            "role": "user",
            "content": f"<tool_response>\n{message['content']}\n</tool_response>",
            "answers": True,
        }
    if "tool_calls" not in message:
        return message
    calls = [
        f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>"
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": "\n".join(filter(None, [message["content"], *calls]))}
