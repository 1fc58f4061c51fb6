"""A program of planted faults and healthy runs: it does what programs do besides a plain tool loop."""

import json
from typing import Any

from openai import OpenAI

from truing.types.rollout import Task

TURNS = 3


def run(task: Task, base_url: str, key: str) -> dict[str, Any]:
    """Look words up until the policy answers; ask for a title, ask twice, and shorten the history once."""
    with OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60) as client:
        said = _loop(client, task)
        _ask(client, [{"role": "system", "content": "Title:"}, {"role": "user", "content": said[:20]}])
        short = [*map(dict, task.messages), {"role": "assistant", "content": said[:3]}, _user("shorter")]
        _ask(client, short)
        return {"said": said}


def _loop(client: OpenAI, task: Task) -> str:
    """Return the policy's last words, after at most ``TURNS`` turns."""
    messages: list[Any] = [dict(message) for message in task.messages]
    tools: list[Any] = [spec.schema() for spec in task.tools]
    for turn in range(TURNS):
        answer = _ask(client, messages, tools)
        messages.append(answer)
        calls = answer.get("tool_calls")
        if turn and not calls:
            break
        if not calls:
            messages.append(_user("again"))
        for call in calls or ():
            found = json.loads(call["function"]["arguments"]).get("word", "")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": found.upper()})
    return messages[-1].get("content") or ""


def _ask(client: OpenAI, messages: list[Any], tools: list[Any] | None = None) -> dict[str, Any]:
    """Return the policy's message."""
    given = {"tools": tools} if tools else {}
    return (
        client.chat.completions.create(model="policy", messages=messages, **given)
        .choices[0]
        .message.to_dict()
    )


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
