"""Messages of Anthropic's API, which are lists of blocks, in the form of chat completions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.endpoint.dialects.reading import listed, place, text_of
from truing.endpoint.dialects.writing import json_text
from truing.envs.conversations.place import Place
from truing.envs.tools import ERROR_PREFIX

ROLES = ("user", "assistant", "system")


def read_messages(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a request.

    Raises:
        DataError: A message cannot be read, or the last one is an answer that the model is to continue.
    """
    result: list[dict[str, Any]] = []
    messages = listed(value, place("messages"), "messages")
    for i, message in enumerate(messages, 1):
        where = place("messages").of(f"message {i}")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise where.error(role, f"a role: {', '.join(ROLES)}")
        if not isinstance(content, str | list):
            raise where.of("content").error(content, "text, or a list of blocks")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = listed(blocks, where.of("content"), "blocks")
        result += [_answer(blocks, where)] if role == "assistant" else _said(role, blocks, where)
    if messages and messages[-1]["role"] == "assistant":
        raise place("messages").error(
            messages[-1], "a last message of the user", "the policy begins its answers itself"
        )
    return result


def _answer(blocks: Sequence[Mapping[str, Any]], where: Place) -> dict[str, Any]:
    """Return a message of the assistant: reasoning, text, calls."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for i, block in enumerate(blocks, 1):
        inside = where.of(f"block {i}")
        match block.get("type"):
            case "text":
                message["content"] += text_of([block], inside)
            case "thinking" if isinstance(block.get("thinking"), str):
                message["reasoning_content"] = message.get("reasoning_content", "") + block["thinking"]
            case "tool_use":
                message.setdefault("tool_calls", []).append(_call(block, inside))
            case _:
                raise inside.error(block, "a block of type text, thinking or tool_use")
    return message


def _call(block: Mapping[str, Any], where: Place) -> dict[str, Any]:
    arguments = block.get("input")
    if not isinstance(arguments, Mapping):
        raise where.of("input").error(arguments, "an object with the arguments of the call")
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": json_text(arguments)},
    }


def _said(role: str, blocks: Sequence[Mapping[str, Any]], where: Place) -> Iterator[dict[str, Any]]:
    """Yield the messages of a user or a system: a message per result of a tool, and one per run of text."""
    texts: list[Mapping[str, Any]] = []
    for i, block in enumerate(blocks, 1):
        if block.get("type") == "tool_result" and role == "user":
            if texts:
                yield {"role": role, "content": text_of(texts, where.of("content"))}
                texts = []
            yield _result(block, where.of(f"block {i}"))
        elif block.get("type") == "text":
            texts.append(block)
        else:
            raise where.of(f"block {i}").error(
                block, "a block of type text or tool_result", "the policy reads text only: leave it out"
            )
    if texts or not blocks:
        yield {"role": role, "content": text_of(texts, where.of("content"))}


def _result(block: Mapping[str, Any], where: Place) -> dict[str, Any]:
    """Return the message with a tool's result; an error is one by its first word, as in an episode."""
    text = text_of(block.get("content"), where) or ""
    if block.get("is_error") is True and not text.startswith(ERROR_PREFIX):
        text = f"{ERROR_PREFIX}{text}"
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}
