"""Messages, demonstrations and tools in the forms of published data sets: text, JSON, OpenAI's messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec

ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
"""Roles under other names."""

EXPECTED_MESSAGES = "text, or a list of messages, each with a role and a content of text"


def read_messages(value: Any) -> tuple[Message, ...]:
    """Return a prompt as messages: text is one message of the user.

    Raises:
        ValueError: It is neither text nor messages; the message says what is expected.
    """
    if isinstance(value, str):
        listed = _json_list(value)
        if listed is None:
            if not value.strip():
                raise ValueError("a text that is not empty")
            return ({"role": "user", "content": value},)
        value = listed
    if not isinstance(value, Sequence) or not value:
        raise ValueError(EXPECTED_MESSAGES)
    return tuple(_message(each) for each in value)


def prompt_and_demonstration(
    messages: Sequence[Message], keep_last: bool
) -> tuple[tuple[Message, ...], str | tuple[AssistantMessage, ...] | None]:
    """Return the prompt, and the last message of the assistant as a demonstration, if the messages end in it.

    With ``keep_last`` it belongs to the prompt, since another column has the demonstration.
    """
    prompt, demonstration = tuple(messages), None
    if not keep_last and messages[-1]["role"] == "assistant":
        prompt, demonstration = prompt[:-1], _demonstration(messages[-1])
    if not any(message["role"] == "user" for message in prompt):
        raise ValueError("a message of the user in the prompt")
    return prompt, demonstration


def read_completion(value: Any) -> str | tuple[AssistantMessage, ...]:
    """Return a demonstration: text, or one message of the assistant."""
    if isinstance(value, str):
        return value
    messages = read_messages(value)
    if len(messages) != 1 or messages[0]["role"] != "assistant":
        raise ValueError(
            "text, or one message of the assistant; for several turns with tools, write an environment"
            " (`truing explain tasks`)"
        )
    return _demonstration(messages[0])


def read_tools(value: Any) -> tuple[ToolSpec, ...]:
    """Return the schemas of tools: OpenAI's form, or its inner table, as a list or JSON text."""
    if isinstance(value, str):
        value = _json_list(value)
    if not isinstance(value, Sequence):
        raise ValueError("a list of tools, each with name, description and parameters")
    return tuple(map(_tool, value))


def message_texts(messages: Sequence[Message]) -> str:
    """Return the texts of messages except the system's, without case and spacing."""
    texts = [message["content"] for message in messages if message["role"] != "system"]
    return "\n".join(" ".join(text.casefold().split()) for text in texts)


def _message(value: Any) -> Message:
    """Return one message, without fields that are null; a tool call's arguments are an object."""
    if not isinstance(value, Mapping):
        raise ValueError(EXPECTED_MESSAGES)
    fields = {key: each for key, each in value.items() if each is not None}
    if "from" in fields and "value" in fields:  # ShareGPT
        fields = {"role": fields["from"], "content": fields["value"]}
    calls = fields.pop("tool_calls", None)
    role, content = fields.get("role"), fields.get("content", "" if calls else None)
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(EXPECTED_MESSAGES)
    message = fields | {"role": ROLES.get(role, role), "content": content}
    if calls:
        read = tuple(map(_call, calls))
        message["tool_calls"] = AssistantMessage(content, read).to_dict()["tool_calls"]
    return message


def _demonstration(message: Message) -> str | tuple[AssistantMessage, ...]:
    """Return the message of an assistant as a demonstration."""
    calls = message.get("tool_calls")
    if not calls:
        return message["content"]
    return (AssistantMessage(message["content"], tuple(map(_call, calls))),)


def _call(value: Any) -> ToolCall:
    """Return a call in OpenAI's form."""
    try:
        function = value["function"]
        arguments = function["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        return ToolCall(function["name"], dict(arguments), value.get("id"))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError("tool calls with a function that has a name and arguments") from error


def _tool(value: Any) -> ToolSpec:
    """Return one tool."""
    function = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError("a list of tools, each with name, description and parameters")
    empty = {"type": "object", "properties": {}}
    parameters = function.get("parameters") or empty
    return ToolSpec(function["name"], function.get("description") or "", parameters)


def _json_list(text: str) -> list[Any] | None:
    """Return the JSON list of objects that a text is, such as a cell of CSV; None for another text."""
    if not text.lstrip().startswith("[{"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
