"""What the dialects share: messages and tools in the form of chat completions become a call."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects.options import wanted_options
from truing.endpoint.dialects.writing import calls_of
from truing.envs.conversations.calls import read_tools
from truing.envs.conversations.message import TEXT_PARTS, read_message
from truing.envs.conversations.place import Place, check_encodable
from truing.errors import DataError
from truing.types.message import Message, ToolSpec
from truing.types.model_call import ModelCall, ModelReply
from truing.utils.parse import MAX_DEPTH, is_deep

KEY_HEADERS = ("authorization", "x-api-key")
WHERE = "the request"

ROLES = {"developer": "system", **{role: role for role in ("system", "user", "assistant", "tool")}}
"""Roles of messages, and what a chat template calls them."""

CACHE_KEYS = ("cache_control", "prompt_cache_breakpoint")
"""Keys of parts and tools that say what to cache."""


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the key of a header ``Authorization: Bearer KEY``; None without one."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def place(field: str) -> Place:
    """Return the place of a field of a request."""
    return Place(WHERE, field, noun="field")


def check_body(body: Mapping[str, Any], unsupported: Mapping[str, str]) -> None:
    """Raise if a body has no model, text that cannot be encoded, or a field that cannot be served.

    Args:
        body: of a request.
        unsupported: fields by name, with what to do instead.
    """
    check_depth(body, WHERE)
    check_encodable(body, WHERE)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise place("model").error(body.get("model"), "the name of a model: any name, the policy answers")
    if not isinstance(body.get("stream"), bool | None):
        raise place("stream").error(body["stream"], "true or false")
    for name, remedy in unsupported.items():
        if body.get(name):
            raise place(name).error(body[name], "a request without it", remedy)


def check_depth(value: Any, where: str) -> None:
    """Raise if a value has lists and objects more than ``MAX_DEPTH`` within each other."""
    if is_deep(value):
        raise DataError(f"{where} is nested too deeply", expected=f"at most {MAX_DEPTH} levels")


def listed(value: Any, where: Place, of: str) -> Sequence[Mapping[str, Any]]:
    """Return a list of objects.

    Raises:
        DataError: it is no list, or has something else; the error names its place.
    """
    if not isinstance(value, list):
        raise where.error(value, f"a list of {of}")
    for i, each in enumerate(value, 1):
        if not isinstance(each, Mapping):
            raise where.of(f"item {i}").error(each, f"one of {of}: an object")
    return value


def text_of(value: Any, where: Place) -> Any:
    """Return a content as text: parts that are text are joined; a null stays, for ``read_message``."""
    if value is None or isinstance(value, str):
        return value
    texts: list[str] = []
    for i, part in enumerate(listed(value, where, "parts of a content"), 1):
        if part.get("type", "text") not in TEXT_PARTS or not isinstance(part.get("text"), str):
            raise where.of(f"part {i}").error(
                part, "a part of text: the policy reads and writes text only", "leave the part out"
            )
        texts.append(part["text"])
    return "".join(texts)


def function_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool in the form of chat completions, without what says nothing of it to the policy."""
    said = {key: each for key, each in function.items() if each is not None and key not in CACHE_KEYS}
    return {"type": "function", "function": said}


def make_call(
    body: Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    headers: Mapping[str, str],
) -> ModelCall:
    """Return a call of messages and tools in the form of chat completions.

    Args:
        body: of the request.
        messages: with contents of text.
        tools: as ``{"type": "function", "function": {...}}``.
        options: what else the request has, by OpenAI's names.
        headers: of the request, by lower-case name.

    Raises:
        DataError: A message or tool cannot be read; the error names it.
    """
    specs = read_tools(json.dumps(tools), place("tools"))  # JSON text: its nulls are its own
    if not messages:
        raise place("messages").error([], "at least one message")
    said = _named(_read(each, specs, i) for i, each in enumerate(messages, 1))
    check_depth(said, "a call in the messages")
    check_encodable({"messages": said}, WHERE)
    strict = any(spec.others.get("strict") for spec in specs)
    return ModelCall(
        messages=said,
        tools=specs,
        model=body["model"],
        wanted=wanted_options({**options, "strict": strict}, has_tools=bool(specs)),
        headers={name: value for name, value in headers.items() if name not in KEY_HEADERS},
        retry=headers.get("x-stainless-retry-count", "0") not in ("", "0"),
    )


def continued(call: ModelCall, earlier: ModelCall, reply: ModelReply) -> ModelCall:
    """Return a call with the messages of the earlier one, and its reply, before its own.

    The instructions of the earlier call are not among them, as in the API of OpenAI.
    """
    calls = tuple(replace(each, id=id) for id, each in calls_of(reply))
    said = replace(reply.message, calls=calls).to_dict()
    own, new = call.messages[: call.instructions], call.messages[call.instructions :]
    history = earlier.messages[earlier.instructions :]
    return replace(call, messages=_named([*own, *history, said, *new]))


def _read(message: Mapping[str, Any], tools: Sequence[ToolSpec], number: int) -> Message:
    """Return a message as the reader of rows reads it."""
    where = place("messages").of(f"message {number}")
    answers = message.get("tool_call_id")
    if message["role"] == "tool" and not isinstance(answers, str):
        raise where.of("tool_call_id").error(answers, "the id of the call that the message answers")
    return read_message(message, tools, where).message


def _named(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages where those of tools have the tool's name, as in an episode, if its call is there."""
    names, named = dict[str, str](), list[Message]()
    for message in messages:
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls", ())}
        name = names.get(message["tool_call_id"]) if message["role"] == "tool" else None
        named.append({"name": name, **message} if name else message)
    return tuple(named)


def refusing(error: DataError) -> CallRefused:
    """Return the refusal of a request that cannot be read."""
    return CallRefused(400, str(error))
