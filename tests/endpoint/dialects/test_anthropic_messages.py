"""Anthropic's Messages: requests as calls, replies as Anthropic's types."""

import json

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from pydantic import TypeAdapter
from scripted_policy import CALLING, REASONED, make_reply

from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects.anthropic_messages import AnthropicMessages
from truing.types.message import AssistantMessage, ToolSpec
from truing.types.status import FinishReason

API = AnthropicMessages()
SCHEMA = {"type": "object", "properties": {}}
LOOK = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
USER = {"role": "user", "content": "Hi"}
BODY = {"model": "claude", "max_tokens": 100, "messages": [USER]}
EVENT = TypeAdapter(RawMessageStreamEvent)
CACHED = {"cache_control": {"type": "ephemeral"}}


def read(headers=(), **fields):
    return API.read({**BODY, **fields}, dict(headers))


def text(words, **others):
    return {"type": "text", "text": words, **others}


def result(id, content, **others):
    return {"type": "tool_result", "tool_use_id": id, "content": content, **others}


def test_blocks_are_messages_as_an_episode_has_them():
    call = read(
        system=[text("Be "), text("brief.", **CACHED)],
        messages=[
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    text("I look."),
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"town": None}},
                    {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [result("c1", "1"), result("c2", [text("2", **CACHED)]), text("Go"), text(" on")],
            },
        ],
        tools=[LOOK | CACHED | {"type": "custom", "eager_input_streaming": True}],
    )
    calls = [("c1", {"town": None}), ("c2", {})]
    assert call.messages == (
        {"role": "system", "content": "Be brief."},
        USER,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}
                for id, arguments in calls
            ],
        },
        {"role": "tool", "name": "look", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "name": "look", "tool_call_id": "c2", "content": "2"},
        {"role": "user", "content": "Go on"},
    )
    assert call.tools == (ToolSpec("look", "Looks.", SCHEMA),)
    assert (call.model, call.wanted) == ("claude", {"max_tokens": 100})


def test_a_failed_result_is_an_error_by_its_first_word():
    said = [
        result("c", "no town", is_error=True),
        result("c", "Error: none", is_error=True),
        result("c", None),
    ]
    contents = [each["content"] for each in read(messages=[{"role": "user", "content": said}]).messages]
    assert contents == ["Error: no town", "Error: none", ""]


def test_a_system_may_be_text_or_empty_and_may_speak_later():
    assert read(system="Be brief.").messages[0] == {"role": "system", "content": "Be brief."}
    assert read(system=[]).messages == read(system="").messages == (USER,)
    later = {"role": "system", "content": [text("Now.")]}
    assert read(messages=[USER, later, USER]).messages[1] == {"role": "system", "content": "Now."}


@pytest.mark.parametrize(
    "message", [REASONED, AssistantMessage("", CALLING.calls, reasoning="Hm."), CALLING, AssistantMessage("")]
)
def test_the_answer_that_a_program_sends_back_is_read_as_the_policy_wrote_it(message):
    answer = Message.model_validate(API.reply(BODY, make_reply(message))).to_param()
    content = [block.model_dump(exclude_none=True) for block in answer["content"]]
    answer = AssistantMessage.of(read(messages=[USER, answer | {"content": content}, USER]).messages[1])
    assert (answer.content, answer.reasoning) == (message.content, message.reasoning)
    assert [(each.name, each.arguments) for each in answer.calls] == [
        (each.name, each.arguments) for each in message.calls
    ]


NEUTRAL = {
    "stop_sequences": [],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "output_config": {"effort": None},
    "thinking": None,
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
    "stream": True,
    "cache_control": {"type": "ephemeral"},
    "speed": "fast",
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_options_that_change_no_answer_are_left_out(name):
    assert read(tools=[LOOK], **{name: NEUTRAL[name]}).wanted == {"max_tokens": 100}


FORMAT = {"type": "json_schema", "schema": {}}
ENABLED = {"type": "enabled", "budget_tokens": 1024}
ASKED = [
    ({"temperature": 1.0, "top_p": 0.5, "top_k": 4}, {"temperature": 1.0, "top_p": 0.5, "top_k": 4}),
    ({"stop_sequences": ["\n"]}, {"stop": ["\n"]}),
    ({"thinking": ENABLED}, {"thinking": ENABLED}),
    (
        {"output_config": {"effort": "low", "format": FORMAT}},
        {"reasoning_effort": "low", "response_format": FORMAT},
    ),
    ({"output_format": FORMAT}, {"response_format": FORMAT}),
    ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    (
        {"tool_choice": {"type": "tool", "name": "look"}},
        {"tool_choice": {"type": "function", "function": {"name": "look"}}},
    ),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, {"parallel_tool_calls": False}),
    ({"tools": [LOOK | {"strict": True}]}, {"strict": True}),
    ({"never_heard_of": 0}, {"never_heard_of": 0}),
]


@pytest.mark.parametrize(("fields", "wanted"), ASKED, ids=lambda value: str(value)[:40])
def test_options_that_could_change_an_answer_are_wanted_by_the_names_of_openai(fields, wanted):
    assert read(**({"tools": [LOOK]} | fields)).wanted == {"max_tokens": 100} | wanted


def said(*blocks, role="user"):
    return {"messages": [{"role": role, "content": list(blocks)}, USER]}


REFUSED = {
    "no max_tokens": ({"max_tokens": None}, "which this API requires"),
    "max_tokens is no number": ({"max_tokens": True}, "which this API requires"),
    "no messages": ({"messages": []}, "at least one message"),
    "a role": ({"messages": [{"role": "tool", "content": "x"}]}, "a role: user, assistant, system"),
    "an unhashable role": ({"messages": [{"role": ["user"], "content": "x"}]}, "a role: user"),
    "no content": ({"messages": [{"role": "user"}]}, "a list of blocks"),
    "an image": (said({"type": "image", "source": {}}), "message 1, block 1"),
    "a document": (said(text("x"), {"type": "document", "source": {}}), "message 1, block 2"),
    "an image of a tool": (said(result("c", [{"type": "image", "source": {}}])), "text only"),
    "a result for no call": (said({"type": "tool_result", "content": "x"}), "tool_call_id"),
    "a result in an answer": (said(result("c", "x"), role="assistant"), "text, thinking or tool_use"),
    "redacted thinking": (said({"type": "redacted_thinking", "data": "x"}, role="assistant"), "block 1"),
    "thinking without text": (said({"type": "thinking"}, role="assistant"), "block 1"),
    "a call with a text": (
        said({"type": "tool_use", "name": "f", "input": "x"}, role="assistant"),
        "an object",
    ),
    "a call without a name": (said({"type": "tool_use", "input": {}}, role="assistant"), "a call"),
    "a text that is none": (said({"type": "text", "text": 1}), "part 1"),
    "a begun answer": (
        {"messages": [USER, {"role": "assistant", "content": "It"}]},
        "the policy begins its answers itself",
    ),
    "a tool of the API": ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tool 1"),
    "a tool that is searched for": ({"tools": [LOOK | {"defer_loading": True}]}, "tool 1"),
    "servers": ({"mcp_servers": [{"url": "x"}]}, "connect the program to the server itself"),
    "a choice": ({"tool_choice": "auto"}, "an object of type tool"),
    "an unhashable choice": ({"tool_choice": {"type": []}}, "an object of type tool"),
    "output_config": ({"output_config": "low"}, "an object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_for_good_with_its_place(name):
    fields, words = REFUSED[name]
    with pytest.raises(CallRefused) as refused:
        read(**fields)
    assert refused.value.status == 400
    assert words in str(refused.value)


def test_the_key_is_that_of_anthropic_or_the_bearer_token_and_is_in_no_call():
    headers = {"x-api-key": "k1", "authorization": "Bearer k2", "anthropic-version": "2023-06-01"}
    assert API.key(headers) == "k1"
    assert API.key({"authorization": "Bearer k2"}) == "k2"
    assert API.key({"x-api-key": " "}) is None
    assert read(headers).headers == {"anthropic-version": "2023-06-01"}


def test_a_reply_is_a_message():
    message = Message.model_validate(API.reply(BODY, make_reply(REASONED)))
    assert (message.id, message.model, message.stop_reason) == ("msg_r1", "claude", "end_turn")
    thinking, said = message.content
    assert (thinking.thinking, said.text) == (REASONED.reasoning, REASONED.content)
    assert thinking.signature
    assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 5)


def test_calls_have_ids_that_are_unique_in_the_run_unless_the_policy_gave_some():
    message = Message.model_validate(API.reply(BODY, make_reply(CALLING, id="r9")))
    assert message.stop_reason == "tool_use"
    assert [(each.id, each.name, each.input) for each in message.content[1:]] == [
        ("r9-0", "look", {"town": "Köln", "n": 1}),
        ("own", "look", {}),
    ]


def test_an_answer_that_was_cut_says_so():
    reply = make_reply(AssistantMessage("I lo"), FinishReason.LENGTH)
    assert Message.model_validate(API.reply(BODY, reply)).stop_reason == "max_tokens"
    assert events(reply)[-2].delta.stop_reason == "max_tokens"


def events(reply):
    result = []
    for each in API.events(BODY, reply):
        name, data = each.removesuffix("\n\n").split("\n")
        read = EVENT.validate_python(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {read.type}"
        result.append(read)
    return result


def test_the_order_of_events_is_that_of_the_api():
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    ends = ["message_delta", "message_stop"]
    assert [each.type for each in events(make_reply(CALLING))] == ["message_start", *block * 3, *ends]
    thinking = [block[0], block[1], *block[1:]]
    assert [each.type for each in events(make_reply(REASONED))] == ["message_start", *thinking, *block, *ends]
    assert [each.type for each in events(make_reply(AssistantMessage("")))] == ["message_start", *ends]


def test_the_start_has_no_content_yet_and_the_end_has_the_counts():
    start, *_, end, _ = events(make_reply(CALLING))
    assert (start.message.content, start.message.stop_reason) == ([], None)
    assert start.message.usage.input_tokens == 7
    assert end.usage.output_tokens == 5


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
    ],
)
def test_a_refusal_has_the_form_of_anthropic(status, kind):
    error = ErrorResponse.model_validate(API.error(CallRefused(status, "why"))).error
    assert (error.type, error.message) == (kind, "why")
