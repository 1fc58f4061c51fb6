"""What the dialects share when they write: ids of calls, arguments as text, events, OpenAI's errors."""

import json
from collections.abc import Mapping
from typing import Any

from truing.endpoint.calls import CallRefused
from truing.types.message import ToolCall
from truing.types.model_call import ModelReply

CODES = {401: "invalid_api_key", 404: "not_found", 409: "conflict", 413: "request_too_large"}
TYPES = {403: "permission_error", 429: "rate_limit_error"}


def calls_of(reply: ModelReply) -> list[tuple[str, ToolCall]]:
    """Return the calls of a reply, each with its id: the policy's own, or one that is unique in the run."""
    return [(call.id or f"{reply.id}-{i}", call) for i, call in enumerate(reply.message.calls)]


def json_text(value: Mapping[str, Any]) -> str:
    """Return arguments of a call as JSON text."""
    return json.dumps(dict(value), ensure_ascii=False)


def event(data: Mapping[str, Any], name: str = "") -> str:
    """Return a server-sent event; its data is one line, since JSON escapes line breaks."""
    return f"event: {name}\n" * bool(name) + f"data: {json.dumps(data)}\n\n"


def openai_error(refused: CallRefused) -> dict[str, Any]:
    """Return the body of a refusal as OpenAI's APIs write it."""
    kind = TYPES.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error")
    return {
        "error": {
            "message": str(refused),
            "type": kind,
            "param": None,
            "code": CODES.get(refused.status),
        }
    }
