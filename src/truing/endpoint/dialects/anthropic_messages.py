"""Anthropic's Messages: ``POST /v1/messages``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects.anthropic_blocks import read_messages
from truing.endpoint.dialects.options import renamed
from truing.endpoint.dialects.reading import (
    bearer,
    check_body,
    function_tool,
    listed,
    make_call,
    place,
    refusing,
    text_of,
)
from truing.endpoint.dialects.writing import calls_of, event, json_text
from truing.errors import DataError
from truing.types.model_call import ModelCall, ModelReply
from truing.types.status import FinishReason

UNSUPPORTED = {"mcp_servers": "connect the program to the server itself, and describe its tools"}
NAMES = {"stop_sequences": "stop"}
READ = ("messages", "system", "tools", "tool_choice", "output_config", "output_format")
OF_THE_API = ("type", "input_schema", "eager_input_streaming", "allowed_callers", "defer_loading")
"""Keys of tools that say nothing of them to the policy."""

CHOICES = {"any": "required", "auto": "auto", "none": "none"}

ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class AnthropicMessages:
    """Reads and writes the Messages API."""

    path = "/v1/messages"
    key_variable = "ANTHROPIC_API_KEY"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key, or the bearer token."""
        return headers.get("x-api-key", "").strip() or bearer(headers)

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ModelCall:
        """Return the call of a request.

        Raises:
            CallRefused: The body is not one of this API, or asks for what no text model does.
        """
        try:
            check_body(body, UNSUPPORTED)
            tools = listed(body.get("tools") or [], place("tools"), "tools")
            options = renamed({name: value for name, value in body.items() if name not in READ}, NAMES)
            return make_call(
                body,
                [*_system(body), *read_messages(body.get("messages"))],
                [_tool(each, i) for i, each in enumerate(tools, 1)],
                options | {"max_tokens": _max_tokens(body)} | _choice(body) | _output(body),
                headers,
            )
        except DataError as error:
            raise refusing(error) from error

    def reply(self, body: Mapping[str, Any], reply: ModelReply) -> Mapping[str, Any]:
        """Return the body of the answer."""
        return {
            **_head(body, reply),
            "content": _blocks(reply),
            "stop_reason": _stop_reason(reply),
            "usage": {"input_tokens": reply.prompt_tokens, "output_tokens": reply.completion_tokens},
        }

    def events(self, body: Mapping[str, Any], reply: ModelReply) -> Iterator[str]:
        """Yield the start of the message, each block with its start, its delta and its end, and the end."""
        start = {
            **_head(body, reply),
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": reply.prompt_tokens, "output_tokens": 0},
        }
        yield _event("message_start", message=start)
        for i, block in enumerate(_blocks(reply)):
            empty, deltas = _in_deltas(block)
            yield _event("content_block_start", index=i, content_block=empty)
            for delta in deltas:
                yield _event("content_block_delta", index=i, delta=delta)
            yield _event("content_block_stop", index=i)
        end = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage={"output_tokens": reply.completion_tokens})
        yield _event("message_stop")

    def error(self, refused: CallRefused) -> Mapping[str, Any]:
        """Return the body of a refusal."""
        kind = ERRORS.get(refused.status, "api_error" if refused.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": str(refused)}}


def _system(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the system message, if there is one."""
    text = text_of(body.get("system"), place("system"))
    return [{"role": "system", "content": text}] if text else []


def _tool(tool: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a tool in the form of chat completions."""
    if tool.get("type") not in (None, "custom") or tool.get("defer_loading"):
        raise (
            place("tools")
            .of(f"tool {number}")
            .error(
                tool, "a tool with name, description and input_schema", "nothing here runs tools of the API"
            )
        )
    others = {key: each for key, each in tool.items() if key not in OF_THE_API}
    return function_tool(others | {"parameters": tool.get("input_schema")})


def _max_tokens(body: Mapping[str, Any]) -> int:
    value = body.get("max_tokens")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise place("max_tokens").error(value, "a whole number from 1, which this API requires")
    return value


def _choice(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a choice of tools asks for, by OpenAI's names."""
    choice = body.get("tool_choice")
    if choice is None:
        return {}
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "tool":
        named: Any = {"type": "function", "function": {"name": choice.get("name")}}
    elif isinstance(kind, str) and kind in CHOICES:
        named = CHOICES[kind]
    else:
        raise place("tool_choice").error(choice, f"an object of type tool, {', '.join(CHOICES)}")
    return {"tool_choice": named, "parallel_tool_calls": not choice.get("disable_parallel_tool_use")}


def _output(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked of the answer's form, and of its effort, by OpenAI's names."""
    config = body.get("output_config") or {}
    if not isinstance(config, Mapping):
        raise place("output_config").error(config, "an object")
    others = renamed(config, {"effort": "reasoning_effort", "format": "response_format"})
    return {"response_format": body.get("output_format")} | others


def _head(body: Mapping[str, Any], reply: ModelReply) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_sequence": None,
    }


def _blocks(reply: ModelReply) -> list[dict[str, Any]]:
    """Return the content: reasoning, text, calls; nothing for what is empty, as the API has it."""
    message = reply.message
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        # clients send reasoning back only with a signature
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": reply.id})
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    return [
        *blocks,
        *(
            {"type": "tool_use", "id": id, "name": call.name, "input": dict(call.arguments)}
            for id, call in calls_of(reply)
        ),
    ]


def _in_deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
    """Return a block without its content, and the deltas that fill it."""
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    text = json_text(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


def _stop_reason(reply: ModelReply) -> str:
    if reply.finish_reason is FinishReason.LENGTH:
        return "max_tokens"
    return "tool_use" if reply.message.calls else "end_turn"


def _event(kind: str, **data: Any) -> str:
    return event({"type": kind, **data}, kind)
