"""What clients put together from answers, beside what the policy said."""

import json

import pytest

from truing.endpoint.dialects import DIALECTS
from truing.endpoint.read_back import said_in
from truing.types.message import AssistantMessage, ToolCall
from truing.types.model_call import ModelReply, Said
from truing.types.status import FinishReason

CALLS = (ToolCall("look", {"word": 'süß\n"quoted"', "n": [1, 2.5, None]}), ToolCall("wait", {}))
MESSAGES = {
    "text": AssistantMessage("two\n\nlines, data: and ⚙"),
    "nothing": AssistantMessage(""),
    "calls": AssistantMessage("", CALLS),
    "all": AssistantMessage("said", CALLS, reasoning="thought"),
}
BODY = {"model": "policy"}


def reply(name):
    return ModelReply("r1", MESSAGES[name], FinishReason.STOP, 5, 7)


def said_by(message, cut=False):
    """What a message says."""
    each = MESSAGES[message]
    return Said(each.reasoning, each.content, [(call.name, call.arguments) for call in each.calls], cut)


def stream(dialect, message):
    return list(dialect.events({**BODY, "stream": True}, reply(message)))


@pytest.fixture(params=DIALECTS, ids=lambda each: each.path)
def dialect(request):
    return request.param


@pytest.mark.parametrize("message", MESSAGES)
def test_an_answer_says_what_the_policy_said(dialect, message):
    body = json.dumps(dialect.reply(BODY, reply(message))).encode()
    assert said_in(dialect.path, body) == said_by(message)
    events = "".join(stream(dialect, message)).encode()
    assert said_in(dialect.path, events) == said_by(message)


def test_an_answer_that_was_cut_says_so(dialect):
    cut = ModelReply("r1", MESSAGES["text"], FinishReason.LENGTH, 5, 7)
    body = json.dumps(dialect.reply(BODY, cut)).encode()
    events = "".join(dialect.events({**BODY, "stream": True}, cut)).encode()
    assert said_in(dialect.path, body) == said_in(dialect.path, events) == said_by("text", cut=True)


def test_bytes_that_are_no_answer_say_nothing(dialect):
    for data in (b"", b"{}", b"data: {}\n\n", b'{"choices": 3}', b"event: x\ndata: [1"):
        assert not said_in(dialect.path, data).readable


def test_a_stream_that_lacks_an_event_with_text_says_something_else(dialect):
    events = stream(dialect, "all")
    lost = [i for i in range(len(events)) if not _says_all(dialect, events[:i] + events[i + 1 :])]
    carry = [i for i, each in enumerate(events) if _carries_text(each)]
    assert set(carry) <= set(lost)
    assert len(carry) >= 4  # reasoning, content and the arguments of two calls


@pytest.mark.parametrize(
    "change", [("said", "sad"), ("thought", "taught"), ("look", "lock"), ("quoted", "q")]
)
def test_an_event_with_another_text_is_seen(dialect, change):
    events = stream(dialect, "all")
    at = next(i for i, each in enumerate(events) if change[0] in each)
    events[at] = events[at].replace(*change)
    assert not _says_all(dialect, events)


def _says_all(dialect, events):
    return said_in(dialect.path, "".join(events).encode()) == said_by("all")


def _carries_text(event):
    """Whether an event has text of the answer that no earlier event has."""
    data = json.loads(event.rpartition("data: ")[2]) if "[DONE]" not in event else {}
    delta = data.get("delta") or (data.get("choices") or [{}])[0].get("delta")
    if isinstance(delta, str):
        return bool(delta)
    arguments = [call["function"]["arguments"] for call in (delta or {}).get("tool_calls", ())]
    named = [(delta or {}).get(name) for name in ("content", "reasoning_content", "text", "thinking")]
    return any(named) or any(arguments) or bool((delta or {}).get("partial_json"))
