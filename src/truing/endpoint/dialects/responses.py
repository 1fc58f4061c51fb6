"""OpenAI's Responses: ``POST /v1/responses``."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from truing.endpoint.calls import CallRefused
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
from truing.endpoint.dialects.responses_items import items_of, read_items
from truing.endpoint.dialects.writing import event, openai_error
from truing.errors import DataError
from truing.types.model_call import ModelCall, ModelReply
from truing.types.status import FinishReason

UNSUPPORTED = {
    "conversation": "send the whole conversation as input, or name the last answer by previous_response_id",
    "prompt": "write the prompt as instructions and input",
    "background": "wait for the answer, or stream it",
}
NAMES = {"max_output_tokens": "max_tokens"}
READ = (
    "input",
    "instructions",
    "previous_response_id",
    "tools",
    "tool_choice",
    "text",
    "reasoning",
    "include",
)
PREFIX = "resp_"
"""Of the id of a response, before that of its reply."""

LOGPROBS = "message.output_text.logprobs"
SUMMARIES = ("summary", "generate_summary")
"""Keys of ``reasoning`` that say how it is shown."""

ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "tools",
    "tool_choice",
)
DEFAULTS = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}}


class Responses:
    """Reads and writes the Responses API."""

    path = "/v1/responses"
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
            tools = listed(body.get("tools") or [], place("tools"), "tools")
            options = renamed({name: value for name, value in body.items() if name not in READ}, NAMES)
            instructions = _instructions(body)
            call = make_call(
                body,
                [*instructions, *read_items(body.get("input"))],
                [_tool(each, i) for i, each in enumerate(tools, 1)],
                options | _text(body) | _reasoning(body) | _include(body) | _choice(body),
                headers,
            )
            return replace(call, continues=_previous(body), instructions=len(instructions))
        except DataError as error:
            raise refusing(error) from error

    def reply(self, body: Mapping[str, Any], reply: ModelReply) -> Mapping[str, Any]:
        """Return the body of the answer."""
        cut = reply.finish_reason is FinishReason.LENGTH
        return {
            **_head(body, reply),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": items_of(reply),
            "usage": _usage(reply),
        }

    def events(self, body: Mapping[str, Any], reply: ModelReply) -> Iterator[str]:
        """Yield the numbered events of the answer: its start, each item with its parts, the whole."""
        numbers = count()
        for kind, data in _events(_head(body, reply), self.reply(body, reply)):
            yield event({"type": kind, **data, "sequence_number": next(numbers)}, kind)

    def error(self, refused: CallRefused) -> Mapping[str, Any]:
        """Return the body of a refusal."""
        return openai_error(refused)


def _instructions(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = text_of(body.get("instructions"), place("instructions"))
    return [{"role": "system", "content": text}] if text else []


def _previous(body: Mapping[str, Any]) -> str:
    """Return the id of the reply that a request continues; "" without one."""
    previous = body.get("previous_response_id") or ""
    if not isinstance(previous, str):
        raise place("previous_response_id").error(previous, "the id of an earlier response")
    return previous.removeprefix(PREFIX)


def _tool(tool: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a tool in the form of chat completions."""
    if tool.get("type") != "function" or tool.get("defer_loading"):
        raise (
            place("tools")
            .of(f"tool {number}")
            .error(tool, "a tool of type function", "describe it as a function that the program runs")
        )
    return function_tool({key: each for key, each in tool.items() if key not in ("type", "defer_loading")})


def _objects(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the options that a field has within it."""
    value = body.get(name) or {}
    if not isinstance(value, Mapping):
        raise place(name).error(value, "an object")
    return dict(value)


def _text(body: Mapping[str, Any]) -> dict[str, Any]:
    return renamed(_objects(body, "text"), {"format": "response_format"})


def _reasoning(body: Mapping[str, Any]) -> dict[str, Any]:
    options = {key: each for key, each in _objects(body, "reasoning").items() if key not in SUMMARIES}
    names = {key: f"reasoning_{key}" for key in options}
    return renamed(options, names)


def _include(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked of log-probabilities; else only what tools of OpenAI found can be included."""
    value = body.get("include") or []
    return {"logprobs": True} if isinstance(value, list) and LOGPROBS in value else {}


def _choice(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choice of a tool, in the form of chat completions."""
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    return {"tool_choice": choice}


def _head(body: Mapping[str, Any], reply: ModelReply) -> dict[str, Any]:
    """Return a response that is in progress."""
    echoed = {name: DEFAULTS.get(name) if body.get(name) is None else body[name] for name in ECHOED}
    return {
        "id": PREFIX + reply.id,
        "object": "response",
        "created_at": int(time.time()),
        "model": body["model"],
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        **echoed,
    }


def _usage(reply: ModelReply) -> dict[str, Any]:
    """Return the counts of tokens; clients read the details, of which nothing is counted, without a check."""
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }


Event = tuple[str, dict[str, Any]]


def _events(started: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Event]:
    yield "response.created", {"response": started}
    yield "response.in_progress", {"response": started}
    for i, item in enumerate(whole["output"]):
        filled = "arguments" if item["type"] == "function_call" else "content"
        empty = {**item, filled: "" if filled == "arguments" else [], "status": "in_progress"}
        yield "response.output_item.added", {"output_index": i, "item": empty}
        place = {"item_id": item["id"], "output_index": i}
        yield from _call(item, place) if filled == "arguments" else _parts(item["content"], place)
        yield "response.output_item.done", {"output_index": i, "item": item}
    yield f"response.{whole['status']}", {"response": whole}


def _call(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[Event]:
    name = "response.function_call_arguments"
    yield f"{name}.delta", {**place, "delta": item["arguments"]}
    yield f"{name}.done", {**place, "name": item["name"], "arguments": item["arguments"]}


def _parts(parts: Sequence[Mapping[str, Any]], place: Mapping[str, Any]) -> Iterator[Event]:
    for i, part in enumerate(parts):
        inside = {**place, "content_index": i}
        kind, logprobs = f"response.{part['type']}", {"logprobs": []} if part["type"] == "output_text" else {}
        yield "response.content_part.added", {**inside, "part": {**part, "text": ""}}
        if part["text"]:
            yield f"{kind}.delta", {**inside, "delta": part["text"], **logprobs}
        yield f"{kind}.done", {**inside, "text": part["text"], **logprobs}
        yield "response.content_part.done", {**inside, "part": part}
