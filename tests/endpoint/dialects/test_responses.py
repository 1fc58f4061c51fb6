"""Responses: requests as calls, replies as OpenAI's types."""

import json

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted_policy import CALLING, REASONED, make_reply

from truing.endpoint.calls import CallRefused
from truing.endpoint.dialects.responses import Responses
from truing.types.message import AssistantMessage, ToolSpec
from truing.types.status import FinishReason

API = Responses()
SCHEMA = {"type": "object", "properties": {}}
LOOK = {"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA}
BODY = {"model": "gpt-5", "input": "Hi"}
EVENT = TypeAdapter(ResponseStreamEvent)


def read(headers=(), **fields):
    return API.read({**BODY, **fields}, dict(headers))


def call_item(id, arguments="{}"):
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "look", "arguments": arguments}


def output_item(id, output):
    return {"type": "function_call_output", "call_id": id, "output": output}


def called(id):
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": {}}}


USER = {"role": "user", "content": "Hi"}
REASONING = {
    "type": "reasoning",
    "id": "rs",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
}
SAID = {
    "type": "message",
    "id": "msg",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
}


def test_text_and_instructions_are_messages():
    call = read(instructions="Be brief.", tools=[LOOK])
    assert call.messages == ({"role": "system", "content": "Be brief."}, USER)
    assert call.tools == (ToolSpec("look", "Looks.", SCHEMA),)
    assert (call.model, call.wanted) == ("gpt-5", {})


def test_items_of_a_turn_are_one_message_and_further_turns_are_others():
    call = read(
        input=[
            {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", **USER},
            REASONING,
            SAID,
            call_item("c1"),
            call_item("c2"),
            output_item("c1", "1"),
            output_item("c2", [{"type": "input_text", "text": "2"}]),
            REASONING,
            call_item("c3"),
            output_item("c3", "3"),
            SAID,
            SAID,
        ]
    )
    assert call.messages == (
        {"role": "system", "content": "Be brief."},
        USER,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [called("c1"), called("c2")],
        },
        {"role": "tool", "name": "look", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "name": "look", "tool_call_id": "c2", "content": "2"},
        {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [called("c3")]},
        {"role": "tool", "name": "look", "tool_call_id": "c3", "content": "3"},
        {"role": "assistant", "content": "I look."},
        {"role": "assistant", "content": "I look."},
    )


def test_reasoning_without_its_text_is_its_summary():
    item = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "So."}]}
    assert read(input=[USER, item]).messages[1]["reasoning_content"] == "So."


@pytest.mark.parametrize("message", [REASONED, AssistantMessage("", CALLING.calls, reasoning="Hm."), CALLING])
def test_the_answer_that_a_program_sends_back_is_read_as_the_policy_wrote_it(message):
    output = Response.model_validate(API.reply(BODY, make_reply(message))).output
    items = [each.model_dump(exclude_none=True) for each in output]
    answer = AssistantMessage.of(read(input=[USER, *items]).messages[1])
    assert (answer.content, answer.reasoning) == (message.content, message.reasoning)
    assert [(each.name, each.arguments) for each in answer.calls] == [
        (each.name, each.arguments) for each in message.calls
    ]


NEUTRAL = {
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "reasoning": {"effort": None, "summary": "auto", "generate_summary": "concise"},
    "include": ["reasoning.encrypted_content"],
    "truncation": "disabled",
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "background": False,
    "store": False,
    "max_tool_calls": 3,
    "stream": True,
    "previous_response_id": None,
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_options_that_change_no_answer_are_left_out(name):
    assert read(tools=[LOOK], **{name: NEUTRAL[name]}).wanted == {}


SCHEMA_FORMAT = {"type": "json_schema", "name": "n", "schema": {}}
ASKED = [
    ({"max_output_tokens": 9}, {"max_tokens": 9}),
    ({"temperature": 0.5, "top_p": 1}, {"temperature": 0.5, "top_p": 1}),
    (
        {"text": {"format": SCHEMA_FORMAT, "verbosity": "low"}},
        {"response_format": SCHEMA_FORMAT, "verbosity": "low"},
    ),
    ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    ({"top_logprobs": 2}, {"top_logprobs": 2}),
    ({"truncation": "auto"}, {"truncation": "auto"}),
    ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    ({"tool_choice": "required"}, {"tool_choice": "required"}),
    (
        {"tool_choice": {"type": "function", "name": "look"}},
        {"tool_choice": {"type": "function", "function": {"name": "look"}}},
    ),
    ({"tools": [{**LOOK, "strict": True}]}, {"strict": True}),
    ({"never_heard_of": 0}, {"never_heard_of": 0}),
]


@pytest.mark.parametrize(("fields", "wanted"), ASKED, ids=lambda value: str(value)[:40])
def test_options_that_could_change_an_answer_are_wanted_by_the_names_of_chat_completions(fields, wanted):
    assert read(**({"tools": [LOOK]} | fields)).wanted == wanted


REFUSED = {
    "previous_response_id": ({"previous_response_id": 1}, "the id of an earlier response"),
    "conversation": ({"conversation": {"id": "c"}}, "send the whole conversation as input"),
    "prompt": ({"prompt": {"id": "p"}}, "write the prompt as instructions"),
    "background": ({"background": True}, "wait for the answer"),
    "no input": ({"input": None}, "a list of items"),
    "an empty input": ({"input": []}, "at least one message"),
    "an item reference": ({"input": [{"type": "item_reference", "id": "x"}]}, "send items in full"),
    "a kind that is no text": ({"input": [{"type": ["message"]}]}, "an item of type"),
    "a search": ({"input": [{"type": "web_search_call", "id": "x"}]}, "an item of type"),
    "an image": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "item 1, content, part 1",
    ),
    "an image of a tool": ({"input": [output_item("c", [{"type": "input_image"}])]}, "text only"),
    "encrypted reasoning": (
        {"input": [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}]},
        "leave out reasoning",
    ),
    "a role": ({"input": [{"role": "tool", "content": "x"}]}, "user, assistant, system or developer"),
    "a call without an id for its result": (
        {"input": [{"type": "function_call_output", "output": "x"}]},
        "id",
    ),
    "arguments": ({"input": [call_item("c", "{")]}, "arguments of look"),
    "a tool of OpenAI": ({"tools": [{"type": "file_search"}]}, "tool 1"),
    "a tool that is searched for": ({"tools": [{**LOOK, "defer_loading": True}]}, "tool 1"),
    "text": ({"text": "json"}, "an object"),
    "reasoning": ({"reasoning": "low"}, "an object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_for_good_with_its_place(name):
    fields, words = REFUSED[name]
    with pytest.raises(CallRefused) as refused:
        read(**fields)
    assert refused.value.status == 400
    assert words in str(refused.value)


def test_a_reply_is_a_response():
    body = {**BODY, "instructions": "Be brief.", "tools": [{**LOOK, "strict": False}], "metadata": {"a": "b"}}
    response = Response.model_validate(API.reply(body, make_reply(REASONED)))
    assert (response.id, response.status, response.model) == ("resp_r1", "completed", "gpt-5")
    assert (response.instructions, response.metadata, response.tools[0].name) == (
        "Be brief.",
        {"a": "b"},
        "look",
    )
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].content[0].text == REASONED.reasoning
    assert response.output_text == REASONED.content
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (
        7,
        5,
        12,
    )


def test_calls_have_ids_that_are_unique_in_the_run_unless_the_policy_gave_some():
    said, *calls = Response.model_validate(API.reply(BODY, make_reply(CALLING, id="r9"))).output
    assert said.content[0].text == "I look."
    assert [(each.call_id, each.name, each.arguments) for each in calls] == [
        ("r9-0", "look", '{"town": "Köln", "n": 1}'),
        ("own", "look", "{}"),
    ]
    assert len({said.id, *(each.id for each in calls)}) == 3


def test_an_answer_that_was_cut_is_incomplete():
    reply = make_reply(AssistantMessage("I lo"), FinishReason.LENGTH)
    response = Response.model_validate(API.reply(BODY, reply))
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output[0].status == "incomplete"
    assert events(reply)[-1].type == "response.incomplete"


def events(reply):
    result = []
    for text in API.events(BODY, reply):
        name, data = text.removesuffix("\n\n").split("\n")
        read = EVENT.validate_python(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {read.type}"
        result.append(read)
    return result


@pytest.mark.parametrize(
    "message", [REASONED, CALLING, AssistantMessage(""), AssistantMessage("", CALLING.calls)]
)
def test_the_events_add_up_to_the_response(message):
    read = events(make_reply(message))
    assert [each.sequence_number for each in read] == [*range(len(read))]
    assert [each.type for each in read[:2]] == ["response.created", "response.in_progress"]
    assert (read[0].response.status, read[0].response.output) == ("in_progress", [])
    response = read[-1].response
    assert read[-1].type == "response.completed"
    for i, item in enumerate(response.output):
        own = [each for each in read if getattr(each, "output_index", None) == i]
        assert (own[0].type, own[-1].type) == ("response.output_item.added", "response.output_item.done")
        assert own[-1].item == item
        deltas = "".join(each.delta for each in own if each.type.endswith(".delta"))
        assert deltas == (item.arguments if item.type == "function_call" else item.content[0].text)
        assert {each.item_id for each in own[1:-1]} == {item.id}


def test_the_order_of_events_is_that_of_the_api():
    def parts(kind):
        return ["content_part.added", f"{kind}.delta", f"{kind}.done", "content_part.done"]

    call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert [each.type.removeprefix("response.") for each in events(make_reply(CALLING))] == [
        "created",
        "in_progress",
        "output_item.added",
        *parts("output_text"),
        "output_item.done",
        *call,
        *call,
        "completed",
    ]
    reasoned = [each.type.removeprefix("response.") for each in events(make_reply(REASONED))]
    assert reasoned[3:7] == parts("reasoning_text")


def test_the_key_and_the_refusals_are_those_of_openai():
    assert API.key({"authorization": "Bearer k"}) == "k"
    assert API.error(CallRefused(400, "why"))["error"]["message"] == "why"
