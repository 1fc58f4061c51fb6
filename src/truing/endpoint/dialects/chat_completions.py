"""OpenAI's Chat Completions: ``POST /v1/chat/completions``."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects.options import renamed
from truing.endpoint.dialects.reading import (
    CACHE_KEYS,
    ROLES,
    bearer,
    check_body,
    function_tool,
    listed,
    make_call,
    place,
    refusing,
    text_of,
)
from truing.endpoint.dialects.writing import calls_of, event, json_text, openai_error
from truing.errors import DataError
from truing.types.model_call import ModelCall, ModelReply
from truing.types.status import FinishReason

UNSUPPORTED = {
    "functions": "describe them as tools",
    "function_call": "use tools and tool_choice",
    "audio": "the policy writes text: leave it out",
    "web_search_options": "nothing here searches the web: leave it out",
}
NAMES = {"max_completion_tokens": "max_tokens"}


class ChatCompletions:
    """Reads and writes the Chat Completions API."""

    path = "/v1/chat/completions"
    key_variable = "OPENAI_API_KEY"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the bearer token."""
        return bearer(headers)

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ModelCall:
        """Return the call of a request.

        Raises:
            CallRefused: The body is not one of this API, or asks for what no text model does.
        """
        try:
            check_body(body, UNSUPPORTED)
            messages = listed(body.get("messages"), place("messages"), "messages")
            tools = listed(body.get("tools") or [], place("tools"), "tools")
            options = {name: value for name, value in body.items() if name not in ("messages", "tools")}
            return make_call(
                body,
                [_message(each, i) for i, each in enumerate(messages, 1)],
                [_tool(each, i) for i, each in enumerate(tools, 1)],
                renamed(options, NAMES),
                headers,
            )
        except DataError as error:
            raise refusing(error) from error

    def reply(self, body: Mapping[str, Any], reply: ModelReply) -> Mapping[str, Any]:
        """Return the body of the answer."""
        message = reply.message
        said: dict[str, Any] = {"role": "assistant", "content": _content(reply), "refusal": None}
        if message.reasoning:
            said["reasoning_content"] = message.reasoning
        if message.calls:
            said["tool_calls"] = _calls(reply)
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": _finish_reason(reply)}
        return {**_head(body, reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, body: Mapping[str, Any], reply: ModelReply) -> Iterator[str]:
        """Yield chunks of the answer: its role, reasoning, content, calls, and why it ended."""
        options = body.get("stream_options")
        shows_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        head = _head(body, reply, "chat.completion.chunk") | ({"usage": None} if shows_usage else {})
        for delta in _deltas(reply):
            yield event({**head, "choices": [_chunk(delta, None)]})
        yield event({**head, "choices": [_chunk({}, _finish_reason(reply))]})
        if shows_usage:
            yield event({**head, "choices": [], "usage": _usage(reply)})
        yield "data: [DONE]\n\n"

    def error(self, refused: CallRefused) -> Mapping[str, Any]:
        """Return the body of a refusal."""
        return openai_error(refused)


def _message(message: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a message with a content of text, without the keys that say nothing."""
    where = place("messages").of(f"message {number}")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise where.error(role, f"a role: {', '.join(ROLES)}")
    content = text_of(message.get("content"), where.of("content"))
    others = {
        key: value for key, value in message.items() if key not in CACHE_KEYS and _says_something(value)
    }
    return others | {
        "role": ROLES[role],
        "content": "" if content is None and role == "assistant" else content,
    }


def _says_something(value: Any) -> bool:
    """Whether a key of a message says something: clients send those of other models empty."""
    return value is not None and value not in ([], {})


def _tool(tool: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        raise (
            place("tools")
            .of(f"tool {number}")
            .error(tool, "a tool of type function", "describe it as a function that the program runs")
        )
    return function_tool(function)


def _content(reply: ModelReply) -> str | None:
    """Return the content; a reply of calls alone has none."""
    return None if reply.message.calls and not reply.message.content else reply.message.content


def _calls(reply: ModelReply) -> list[dict[str, Any]]:
    return [
        {
            "id": id,
            "type": "function",
            "function": {"name": call.name, "arguments": json_text(call.arguments)},
        }
        for id, call in calls_of(reply)
    ]


def _deltas(reply: ModelReply) -> Iterator[dict[str, Any]]:
    """Yield the parts of a message, each once: the answer is complete before the first is sent."""
    yield {"role": "assistant", "content": None if _content(reply) is None else "", "refusal": None}
    if reply.message.reasoning:
        yield {"reasoning_content": reply.message.reasoning}
    if reply.message.content:
        yield {"content": reply.message.content}
    for i, call in enumerate(_calls(reply)):
        function = call["function"]
        yield {"tool_calls": [{"index": i, **call, "function": {**function, "arguments": ""}}]}
        yield {"tool_calls": [{"index": i, "function": {"arguments": function["arguments"]}}]}


def _chunk(delta: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _head(body: Mapping[str, Any], reply: ModelReply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": kind,
        "created": int(time.time()),
        "model": body["model"],
    }


def _finish_reason(reply: ModelReply) -> str:
    if reply.finish_reason is FinishReason.LENGTH:
        return "length"
    return "tool_calls" if reply.message.calls else "stop"


def _usage(reply: ModelReply) -> dict[str, int]:
    prompt, completion = reply.prompt_tokens, reply.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
