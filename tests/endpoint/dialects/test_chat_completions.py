"""Chat Completions: requests as calls, replies as OpenAI's types."""

import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.shared import ErrorObject
from scripted_policy import CALLING, REASONED, make_reply

from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects.chat_completions import ChatCompletions
from truing.types.message import AssistantMessage, ToolSpec
from truing.types.status import FinishReason

API = ChatCompletions()
USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"town": {"type": "string", "default": None}}}
LOOK = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"town": null}'}}
BODY = {"model": "gpt-5", "messages": [USER]}


def read(headers=(), **fields):
    return API.read({**BODY, **fields}, dict(headers))


def test_a_conversation_with_a_tool_is_read_as_an_episode_has_it():
    answer = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [CALL]}
    call = read(
        messages=[
            {
                "role": "developer",
                "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
            },
            USER | {"name": "Ann"},
            answer | {"reasoning_content": "Look first.", "audio": None, "function_call": None},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "11.5"}]},
        ],
        tools=[LOOK],
    )
    function = {"name": "look", "arguments": {"town": None}}
    assert call.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi", "name": "Ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Look first.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "name": "look", "tool_call_id": "c1", "content": "11.5"},
    )
    assert call.tools == (ToolSpec("look", "Looks.", SCHEMA),)
    assert (call.model, call.wanted, call.retry) == ("gpt-5", {}, False)


def test_the_answer_that_a_program_sends_back_is_read_as_the_policy_wrote_it():
    reply = make_reply(CALLING)
    [choice] = ChatCompletion.model_validate(API.reply(BODY, reply)).choices
    call = read(messages=[USER, choice.message.model_dump()], tools=[LOOK])
    assert AssistantMessage.of(call.messages[1]).content == CALLING.content
    assert [(each.name, each.arguments) for each in AssistantMessage.of(call.messages[1]).calls] == [
        (each.name, each.arguments) for each in CALLING.calls
    ]
    sent_back = ChatCompletion.model_validate(API.reply(BODY, make_reply(REASONED))).choices[0].message
    assert AssistantMessage.of(read(messages=[USER, sent_back.model_dump()]).messages[1]) == REASONED


NEUTRAL = {
    "n": 1,
    "stop": [],
    "temperature": None,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "logprobs": False,
    "top_logprobs": 0,
    "logit_bias": {},
    "modalities": ["text"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "user": "u",
    "metadata": {"a": "b"},
    "store": True,
    "service_tier": "auto",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_options_that_change_no_answer_are_left_out(name):
    assert read(tools=[LOOK], **{name: NEUTRAL[name]}).wanted == {}


ASKED = {
    "temperature": 1,
    "top_p": 1.0,
    "top_k": 5,
    "presence_penalty": 0,
    "max_tokens": 0,
    "stop": "\n",
    "seed": 0,
    "n": 2,
    "logit_bias": {"5": -100},
    "response_format": {"type": "json_object"},
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "logprobs": True,
    "reasoning_effort": "low",
    "verbosity": "low",
    "chat_template_kwargs": {"enable_thinking": False},
    "never_heard_of": False,
}


@pytest.mark.parametrize("name", ASKED)
def test_options_that_could_change_an_answer_are_wanted_also_unknown_ones(name):
    assert read(tools=[LOOK], **{name: ASKED[name]}).wanted == {name: ASKED[name]}


def test_options_of_tools_are_wanted_only_where_there_are_tools():
    assert read(parallel_tool_calls=False, tool_choice="none", tools=[]).wanted == {}
    assert read(tool_choice="required").wanted == {"tool_choice": "required"}
    strict = {**LOOK, "function": {**LOOK["function"], "strict": True}}
    assert read(tools=[LOOK, strict]).wanted == {"strict": True}
    assert (
        read(tools=[{**LOOK, "function": {**LOOK["function"], "strict": None}}]).tools
        == read(tools=[LOOK]).tools
    )


def test_the_new_name_of_max_tokens_is_the_old_one():
    assert read(max_completion_tokens=9).wanted == {"max_tokens": 9}
    assert read(max_completion_tokens=9, max_tokens=None).wanted == {"max_tokens": 9}


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}
DEEP = [[]]
for _ in range(70):
    DEEP = [DEEP]

REFUSED = {
    "no model": ({"model": None}, "field 'model'"),
    "stream is no flag": ({"stream": "yes"}, "field 'stream'"),
    "no messages": ({"messages": []}, "at least one message"),
    "messages of text": ({"messages": "Hi"}, "a list of messages"),
    "a message of text": ({"messages": ["Hi"]}, "item 1"),
    "an image": ({"messages": [USER, IMAGE]}, "message 2, content, part 1"),
    "an audio part": ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "text only"),
    "an image of a tool": ({"messages": [IMAGE | {"role": "tool", "tool_call_id": "c"}]}, "text only"),
    "no content": ({"messages": [{"role": "user"}]}, "give the message a content"),
    "a role": ({"messages": [{"role": "robot", "content": ""}]}, "a role: developer, system"),
    "a role that is no text": ({"messages": [{"role": ["user"], "content": ""}]}, "a role"),
    "a tool's result for no call": ({"messages": [{"role": "tool", "content": "1"}]}, "tool_call_id"),
    "a call without a name": ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "a call"),
    "arguments that are no JSON": (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
        "arguments of f",
    ),
    "arguments nested too deeply": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "f", "arguments": '{"a":' * 80 + "1" + "}" * 80}}],
                }
            ]
        },
        "nested too deeply",
    ),
    "half a surrogate pair": ({"messages": [{"role": "user", "content": "\ud800"}]}, "surrogate"),
    "half a surrogate pair in arguments": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "f", "arguments": r'{"a": "\ud800"}'}}],
                }
            ]
        },
        "surrogate",
    ),
    "nested too deeply": ({"metadata": DEEP}, "nested too deeply"),
    "functions": ({"functions": [{"name": "f"}]}, "describe them as tools"),
    "a function call": ({"function_call": "auto"}, "use tools and tool_choice"),
    "audio": ({"audio": {"voice": "x"}}, "the policy writes text"),
    "a tool of OpenAI": ({"tools": [{"type": "web_search"}]}, "a tool of type function"),
    "a tool without a name": ({"tools": [{"type": "function", "function": {}}]}, "tool 1"),
    "tools that are no list": ({"tools": {"a": 1}}, "a list of tools"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_for_good_with_its_place(name):
    fields, words = REFUSED[name]
    with pytest.raises(CallRefused) as refused:
        read(**fields)
    assert refused.value.status == 400
    assert words in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_the_key_is_the_bearer_token_and_is_in_no_call():
    headers = {"authorization": "Bearer k1", "x-api-key": "k2", "x-run": "7", "x-stainless-retry-count": "1"}
    assert API.key(headers) == "k1"
    call = read(headers)
    assert call.headers == {"x-run": "7", "x-stainless-retry-count": "1"}
    assert call.retry
    assert [API.key(each) for each in ({}, {"authorization": "Bearer "}, {"authorization": "Basic k"})] == [
        None
    ] * 3


def test_a_reply_is_a_chat_completion():
    completion = ChatCompletion.model_validate(API.reply(BODY, make_reply(REASONED)))
    assert (completion.id, completion.model) == ("chatcmpl-r1", "gpt-5")
    assert completion.choices[0].message.content == REASONED.content
    assert completion.choices[0].message.model_extra["reasoning_content"] == REASONED.reasoning
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
    }


def test_calls_have_ids_that_are_unique_in_the_run_unless_the_policy_gave_some():
    [choice] = ChatCompletion.model_validate(API.reply(BODY, make_reply(CALLING, id="r9"))).choices
    assert choice.finish_reason == "tool_calls"
    assert [(each.id, each.function.name, each.function.arguments) for each in choice.message.tool_calls] == [
        ("r9-0", "look", '{"town": "Köln", "n": 1}'),
        ("own", "look", "{}"),
    ]


@pytest.mark.parametrize(
    ("message", "finish", "content", "reason"),
    [
        (AssistantMessage(""), FinishReason.STOP, "", "stop"),
        (AssistantMessage("", CALLING.calls), FinishReason.TOOL, None, "tool_calls"),
        (AssistantMessage("I lo"), FinishReason.LENGTH, "I lo", "length"),
    ],
)
def test_how_an_answer_ended(message, finish, content, reason):
    reply = make_reply(message, finish)
    [choice] = ChatCompletion.model_validate(API.reply(BODY, reply)).choices
    assert (choice.message.content, choice.finish_reason) == (content, reason)
    assert chunks(reply)[-1].choices[0].finish_reason == reason


def chunks(reply, **fields):
    events = list(API.events({**BODY, **fields}, reply))
    assert events[-1] == "data: [DONE]\n\n"
    data = [event.removeprefix("data: ") for event in events[:-1]]
    assert all(each.endswith("\n\n") and "\n" not in each[:-2] for each in data)
    return [ChatCompletionChunk.model_validate(json.loads(each)) for each in data]


@pytest.mark.parametrize("message", [REASONED, CALLING, AssistantMessage("a\nb")])
def test_the_chunks_add_up_to_the_reply(message):
    read = chunks(make_reply(message))
    deltas = [choice.delta for chunk in read for choice in chunk.choices]
    assert [each.role for each in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert "".join(each.content or "" for each in deltas) == message.content
    assert (
        "".join((each.model_extra or {}).get("reasoning_content", "") for each in deltas) == message.reasoning
    )
    parts = [part for each in deltas for part in each.tool_calls or ()]
    for i, call in enumerate(message.calls):
        own = [part for part in parts if part.index == i]
        assert [part.function.name for part in own] == [call.name, None]
        assert json.loads("".join(part.function.arguments for part in own)) == call.arguments
    assert all(chunk.usage is None and chunk.choices for chunk in read)


def test_usage_is_the_last_chunk_where_it_is_asked_for():
    read = chunks(make_reply(), stream_options={"include_usage": True})
    assert [chunk.usage is None for chunk in read] == [True] * (len(read) - 1) + [False]
    assert (read[-1].choices, read[-1].usage.total_tokens) == ([], 12)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "invalid_request_error", "invalid_api_key"),
        (403, "permission_error", None),
        (404, "invalid_request_error", "not_found"),
        (409, "invalid_request_error", "conflict"),
        (429, "rate_limit_error", None),
        (500, "server_error", None),
        (503, "server_error", None),
    ],
)
def test_a_refusal_has_the_form_of_openai(status, kind, code):
    error = ErrorObject.model_validate(API.error(CallRefused(status, "why"))["error"])
    assert (error.message, error.type, error.code, error.param) == ("why", kind, code, None)


@pytest.mark.parametrize("odd", [{"enum": 5}, {"type": 5}, {"anyOf": 5}, {"oneOf": {"a": 1}}])
def test_arguments_are_read_beside_a_schema_that_is_none(odd):
    function = {**LOOK["function"], "parameters": {"properties": {"town": odd}}}
    call = {**CALL, "function": {"name": "look", "arguments": {"town": None}}}
    asked = read(
        messages=[USER, {"role": "assistant", "content": "", "tool_calls": [call]}],
        tools=[{"type": "function", "function": function}],
    )
    assert asked.messages[1]["tool_calls"][0]["function"]["name"] == "look"
