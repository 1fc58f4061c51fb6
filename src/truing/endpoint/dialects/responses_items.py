"""Items of the Responses API in the form of chat completions, and the items of a reply."""

from collections.abc import Iterator, Mapping
from typing import Any

from truing.endpoint.dialects.reading import ROLES, listed, place, text_of
from truing.endpoint.dialects.writing import calls_of, json_text
from truing.envs.conversations.place import Place
from truing.types.model_call import ModelReply
from truing.types.status import FinishReason

PARTS = ("reasoning", "message", "function_call")
"""Types of the items of one turn of the model, in the order in which it writes them."""


def read_items(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the messages of an input; items of one turn of the model are one message.

    Raises:
        DataError: An item cannot be read, or is of a tool that only OpenAI runs.
    """
    if isinstance(value, str):
        yield {"role": "user", "content": value}
        return
    turn: dict[str, Any] = {}
    begun = -1  # the last part of the turn that was read
    for i, item in enumerate(listed(value, place("input"), "items"), 1):
        where = place("input").of(f"item {i}")
        kind = item.get("type", "message")
        message = _message(item, kind, where)
        part = PARTS.index(kind) if message["role"] == "assistant" else -1
        if turn and (part < begun or part == begun != PARTS.index("function_call")):
            yield turn
            turn = {}
        begun = part
        if part < 0:
            yield message
        else:
            turn = _joined(turn, message)
    if turn:
        yield turn


def _joined(turn: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn with what its next item says."""
    calls = [*turn.get("tool_calls", ()), *message.get("tool_calls", ())]
    content = turn.get("content", "") + message["content"]
    return {**turn, **message, "content": content} | ({"tool_calls": calls} if calls else {})


def _message(item: Mapping[str, Any], kind: Any, where: Place) -> dict[str, Any]:
    """Return an item as a message; one of the model is a part of its turn."""
    match kind:
        case "message":
            role = item.get("role")
            if not isinstance(role, str) or role not in ROLES or role == "tool":
                raise where.of("role").error(role, "user, assistant, system or developer")
            text = text_of(item.get("content"), where.of("content"))
            return {"role": ROLES[role], "content": "" if text is None and role == "assistant" else text}
        case "reasoning":
            return {"role": "assistant", "content": "", "reasoning_content": _reasoning(item, where)}
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case "function_call_output":
            text = text_of(item.get("output"), where.of("output"))
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}
        case _:
            raise where.error(
                item,
                "an item of type message, reasoning, function_call or function_call_output",
                "send items in full, and describe tools as functions that the program runs",
            )


def _reasoning(item: Mapping[str, Any], where: Place) -> str:
    """Return the text of a reasoning item, or its summary if it has no text."""
    for key in ("content", "summary"):
        texts = [part.get("text") for part in listed(item.get(key) or [], where.of(key), "texts")]
        if texts and all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    if item.get("encrypted_content"):
        raise where.error(item, "reasoning as text", "leave out reasoning that another model encrypted")
    return ""


def items_of(reply: ModelReply) -> list[dict[str, Any]]:
    """Return the items of a reply: reasoning, message, calls; a reply without calls has a message."""
    message = reply.message
    status = "incomplete" if reply.finish_reason is FinishReason.LENGTH else "completed"
    items: list[dict[str, Any]] = []
    if message.reasoning:
        part: dict[str, Any] = {"type": "reasoning_text", "text": message.reasoning}
        items.append({"id": f"rs_{reply.id}", "type": "reasoning", "summary": [], "content": [part]})
    if message.content or not message.calls:
        part = {"type": "output_text", "text": message.content, "annotations": [], "logprobs": []}
        said = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "content": [part]}
        items.append(said | {"status": status})
    for i, (id, call) in enumerate(calls_of(reply)):
        called = {"id": f"fc_{reply.id}-{i}", "type": "function_call", "call_id": id, "name": call.name}
        items.append(called | {"arguments": json_text(call.arguments), "status": "completed"})
    return items
