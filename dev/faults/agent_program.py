"""A program of planted faults and healthy runs: it does what programs do besides a plain tool loop."""

import json
import time
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from openai import OpenAI

from truing.types.rollout import Task

TURNS = 3


def run(task: Task, base_url: str, key: str) -> dict[str, Any]:
    """Look words up until the policy answers; ask for a title, go on, branch, edit the history.

    One request is given up before it is answered, and the last one is for another title, as a stream.
    """
    with OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60) as client:
        messages = _loop(client, task)
        said = messages[-1].get("content") or ""
        _ask(client, _title(said))
        messages.append(_user("and now?"))
        messages.append(_ask(client, messages, _tools(task)))
        _ask(client, [*messages[:2], *_tool_messages(messages[1]), _user("another")], _tools(task))
        _ask(client, [*messages[:1], {"role": "assistant", "content": said[:3]}, _user("shorter")])
        give_up(base_url, key, [*messages[:1], _user("never mind")])
        _read_stream(client, _title(said))
        return {"said": said}


def ask_thrice(task: Task, base_url: str, key: str) -> str:
    """Ask three times in one conversation, and for a title after the first answer and the last."""
    with OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60) as client:
        messages: list[Any] = [dict(message) for message in task.messages]
        for number in range(3):
            messages += [_ask(client, messages), _user("again")]
            if number != 1:
                _ask(client, _title(messages[-2].get("content") or ""))
        return messages[-2].get("content") or ""


def _title(text: str) -> list[Any]:
    return [{"role": "system", "content": "Title:"}, _user(text[:20])]


def _loop(client: OpenAI, task: Task) -> list[Any]:
    """Return the messages after at most ``TURNS`` turns of the policy."""
    messages: list[Any] = [dict(message) for message in task.messages]
    for turn in range(TURNS):
        answer = _ask(client, messages, _tools(task))
        messages.append(answer)
        if (turn and not answer.get("tool_calls")) or turn == TURNS - 1:
            break
        messages += _tool_messages(answer) or [_user("again")]
    return messages


def _tool_messages(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of a message's calls."""
    found = [
        (call["id"], str(json.loads(call["function"]["arguments"]).get("word", "")))
        for call in answer.get("tool_calls") or ()
    ]
    return [{"role": "tool", "tool_call_id": id, "content": word.upper()} for id, word in found]


def _tools(task: Task) -> list[Any]:
    return [spec.schema() for spec in task.tools]


def give_up(base_url: str, key: str, messages: list[Any]) -> None:
    """Send a request, and close the connection before its answer."""
    address = urlsplit(base_url)
    connection = HTTPConnection(address.hostname or "", address.port)
    body = json.dumps({"model": "policy", "messages": messages})
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", f"{address.path}/chat/completions", body, headers)
    time.sleep(0.05)  # so that the trainer has it
    connection.close()


def _ask(client: OpenAI, messages: list[Any], tools: list[Any] | None = None) -> dict[str, Any]:
    """Return the policy's message."""
    given: Any = {"tools": tools} if tools else {}
    return (
        client.chat.completions.create(model="policy", messages=messages, **given)
        .choices[0]
        .message.to_dict()
    )


def _read_stream(client: OpenAI, messages: list[Any]) -> str:
    """Return the policy's text, read in parts."""
    parts = client.chat.completions.create(model="policy", messages=messages, stream=True)
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
