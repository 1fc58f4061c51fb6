"""Whatever a part of a request is, the request is read or refused: a program cannot end a run."""

import copy
import json
from collections import Counter

import pytest
from scripted_policy import CALLING, REASONED, make_reply

from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects import DIALECTS
from truing.types.model_call import ModelCall

SCHEMA = {"type": "object", "properties": {"town": {"type": "string"}}}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TEXT = {"type": "text", "text": "Hi"}
OPTIONS = {
    "temperature": 1.0,
    "stream": True,
    "stream_options": {"include_usage": True},
    "metadata": {"a": "b"},
}

BODIES = {
    "/v1/chat/completions": {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [TEXT], "name": "Ann"},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "response_format": {"type": "json_object"},
        "logit_bias": {"5": 1},
        **OPTIONS,
    },
    "/v1/responses": {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {
                "type": "reasoning",
                "id": "r",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "look"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        **OPTIONS,
    },
    "/v1/messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [TEXT],
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    TEXT,
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"town": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [TEXT], "is_error": True},
                    TEXT,
                ],
            },
        ],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "output_config": {"effort": "low"},
        "thinking": {"type": "disabled"},
        **OPTIONS,
    },
}

VALUES = [
    None,
    True,
    0,
    -1.5,
    float("nan"),
    "",
    "{",
    "[]",
    "x",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"type": []},
    {"a": None},
]


def paths(value, path=()):
    """Yield the path of each part of a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*path, key)
        yield from paths(part, (*path, key))


def changed(body, path, value):
    result = inside = copy.deepcopy(body)
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return result


def without(body, path):
    result = inside = copy.deepcopy(body)
    for key in path[:-1]:
        inside = inside[key]
    del inside[path[-1]]
    return result


def status(dialect, body):
    """Answer a request by a dialect: 200, or the status of its refusal."""
    try:
        assert isinstance(dialect.read(body, {}), ModelCall)
    except CallRefused as error:
        return error.status
    for message in (REASONED, CALLING):
        json.dumps(dialect.reply(body, make_reply(message)))
        assert "".join(dialect.events(body, make_reply(message)))
    return 200


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.path)
def test_a_request_with_any_part_changed_is_answered_or_refused(dialect):
    body = BODIES[dialect.path]
    bodies = [changed(body, path, value) for path in paths(body) for value in VALUES]
    counts = Counter(status(dialect, each) for each in bodies)
    assert set(counts) == {200, 400}
    assert min(counts.values()) > 100
    assert status(dialect, body) == 200


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.path)
def test_a_request_without_any_one_part_is_answered_or_refused(dialect):
    body = BODIES[dialect.path]
    assert {status(dialect, without(body, path)) for path in paths(body)} == {200, 400}
