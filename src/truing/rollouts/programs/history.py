"""Histories of calls, compared as parsed: a client gives the policy's messages back in a form of its own."""

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from truing.chat.reasoning import split_reasoning
from truing.types.message import Message, call_id
from truing.utils.format import shorten

Parsed = tuple[str, str, tuple[tuple[str, str], ...]]
"""What two forms of one message have in common: role, text, and the calls, each its name and arguments."""


def parsed(message: Message, tool_format: str) -> Parsed:
    """Return what is compared of a message.

    Of the policy's messages white space, reasoning, the ids of calls and the form of their arguments do not
    count; of all others the whole text does.
    """
    if message["role"] != "assistant":
        return message["role"], message["content"], ()
    text = split_reasoning([message], tool_format)[0]["content"]
    return "assistant", " ".join(text.split()), tuple(_call(call) for call in message.get("tool_calls", ()))


def _call(call: Mapping[str, Any]) -> tuple[str, str]:
    function = call["function"]
    return function["name"], json.dumps(function["arguments"], sort_keys=True)


def common_length(one: Sequence[Parsed], other: Sequence[Parsed]) -> int:
    """Return how many messages two histories have in common from the first on."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def opening(asked: Sequence[Parsed]) -> int:
    """Return how many messages a history begins with, up to the first that is no system message."""
    return next((i + 1 for i, (role, *_) in enumerate(asked) if role != "system"), len(asked))


def differences(ours: Message, given: Message, tool_format: str) -> list[str]:
    """Return in which parts a client's copy of a message of the policy is written differently."""
    (mine,), (theirs,) = (split_reasoning([message], tool_format) for message in (ours, given))
    calls = [message.get("tool_calls", ()) for message in (ours, given)]
    # where the policy's format has no ids, the endpoint made those that the client gives back
    own = [i for i, call in enumerate(calls[0]) if call.get("id") != call_id(i)]
    parts = {
        "reasoning": [message.get("reasoning_content", "").strip() for message in (mine, theirs)],
        "white space": [message["content"] for message in (mine, theirs)],
        "ids of calls": [[each[i].get("id") for i in own] for each in calls],
        "order of arguments": [[list(call["function"]["arguments"]) for call in each] for each in calls],
    }
    return [name for name, (a, b) in parts.items() if a != b]


def with_names_of_calls(replies: Sequence[Message], given: Message, ours: Message) -> list[Message]:
    """Return what follows a message of the policy, its tools' messages with the policy's ids and names.

    Args:
        replies: messages after it, as the client sent them.
        given: the policy's message as the client sent it; its calls have the ids that ``replies`` refer to.
        ours: the same message as the policy wrote it.
    """
    calls = ours.get("tool_calls", ())
    numbers = {call.get("id"): i for i, call in enumerate(given.get("tool_calls", ()))}
    named: list[Message] = []
    for message in replies:
        index = numbers.get(message.get("tool_call_id")) if message["role"] == "tool" else None
        if index is not None:
            call = calls[index]
            own = {"name": call["function"]["name"], "tool_call_id": call.get("id") or call_id(index)}
            message = {**message, **own}
        named.append(message)
    return named


def difference_of_histories(before: Sequence[Parsed], now: Sequence[Parsed]) -> str:
    """Return the first message in which a history differs from an earlier one, in words."""
    i = common_length(before, now)
    was, is_now = (shorten(each[i][1]) if i < len(each) else "nothing" for each in (before, now))
    return f"message {i + 1} was {was!r} and is {is_now!r}"
