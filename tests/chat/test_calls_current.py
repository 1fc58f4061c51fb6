"""Calls between tags, and as Python or Gemma 4 writes them: what is read, and what is scaffolding."""

import re

import pytest

from truing.chat.call_formats import FORMATS
from truing.chat.call_parser import detect_format, parse_calls
from truing.types.message import AssistantMessage, ToolCall, ToolSpec

WEATHER = ToolCall("weather", {"city": "Oslo", "days": 3})
CLOCK = ToolCall("clock", {})
TOOLS = (
    ToolSpec(
        "weather",
        "Weather.",
        {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    ),
    ToolSpec("clock", "Time.", {"type": "object", "properties": {}}),
)

GOOD = {
    "a function and its parameters": (
        "qwen3_coder",
        "Let me see.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        AssistantMessage("Let me see.", (WEATHER,)),
        [
            "\n\n<tool_call>\n<function=",
            ">\n<parameter=city>\n",
            "\n</parameter>\n<parameter=days>\n",
            "\n</parameter>\n</function>\n</tool_call>",
        ],
    ),
    "no arguments, and a line end as Nemotron writes it": (
        "qwen3_coder",
        "<tool_call>\n<function=clock>\n</function>\n</tool_call>\n",
        AssistantMessage("", (CLOCK,)),
        ["<tool_call>\n<function=", ">\n</function>\n</tool_call>\n"],
    ),
    "two functions on one line each": (
        "qwen3_coder",
        "<tool_call><function=clock></function></tool_call>\n<tool_call><function=weather><parameter=city>Oslo"
        "</parameter><parameter=days>3</parameter></function></tool_call>",
        AssistantMessage("", (CLOCK, WEATHER)),
        [
            "<tool_call><function=",
            "></function></tool_call>",
            "\n<tool_call><function=",
            "><parameter=city>",
            "</parameter><parameter=days>",
            "</parameter></function></tool_call>",
        ],
    ),
    "keys and values on lines": (
        "glm45",
        "\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>",
        AssistantMessage("", (WEATHER,)),
        [
            "\n<tool_call>",
            "\n<arg_key>city</arg_key>\n<arg_value>",
            "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>",
            "</arg_value>\n</tool_call>",
        ],
    ),
    "keys and values without lines": (
        "glm47",
        "</think>So.<tool_call>clock</tool_call><tool_call>weather<arg_key>city</arg_key><arg_value>Oslo"
        "</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
        AssistantMessage("</think>So.", (CLOCK, WEATHER)),
        [
            "<tool_call>",
            "</tool_call>",
            "<tool_call>",
            "<arg_key>city</arg_key><arg_value>",
            "</arg_value><arg_key>days</arg_key><arg_value>",
            "</arg_value></tool_call>",
        ],
    ),
    "a list as Python writes it": (
        "lfm2",
        "So.<|tool_call_start|>[clock(), weather(city='Oslo', days=3)]<|tool_call_end|>",
        AssistantMessage("So.", (CLOCK, WEATHER)),
        ["<|tool_call_start|>[", "(), ", "(city='", "', days=", ")]<|tool_call_end|>"],
    ),
    "text between quotes that are a token": (
        "gemma4",
        '<|tool_call>call:clock{}<tool_call|><|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|>',
        AssistantMessage("", (CLOCK, WEATHER)),
        [
            "<|tool_call>call:",
            "{}<tool_call|>",
            "<|tool_call>call:",
            '{city:<|"|>',
            '<|"|>,days:',
            "}<tool_call|>",
        ],
    ),
    "two invokes in a block": (
        "minimax",
        '\n<minimax:tool_call>\n<invoke name="clock">\n</invoke>\n<invoke name="weather">\n'
        '<parameter name="city">Oslo</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
        AssistantMessage("", (CLOCK, WEATHER)),
        [
            '\n<minimax:tool_call>\n<invoke name="',
            '">\n</invoke>\n<invoke name="',
            '">\n<parameter name="city">',
            '</parameter>\n<parameter name="days">',
            "</parameter>\n</invoke>\n</minimax:tool_call>",
        ],
    ),
    "a thought in tags of its own": (
        "seed_oss",
        "<seed:think>or <seed:tool_call>?</seed:think>\n<seed:tool_call>\n<function=clock>\n</function>\n"
        "</seed:tool_call>",
        AssistantMessage("<seed:think>or <seed:tool_call>?</seed:think>", (CLOCK,)),
        ["\n<seed:tool_call>\n<function=", ">\n</function>\n</seed:tool_call>"],
    ),
    "nothing between the tags is a choice, and the closing tag is all there is of it": (
        "qwen3_coder",
        "<tool_call>\n<function=weather>\n<parameter=city>\n\n</parameter>\n</function>\n</tool_call>",
        AssistantMessage("", (ToolCall("weather", {"city": ""}),)),
        ["<tool_call>\n<function=", ">\n<parameter=city>\n", "</function>\n</tool_call>"],
    ),
}


@pytest.mark.parametrize(("format", "text", "said", "scaffolding"), GOOD.values(), ids=GOOD)
def test_a_call_as_its_family_writes_it(format, text, said, scaffolding):
    parsed = parse_calls(text, format, TOOLS)
    assert parsed.message == said
    assert [text[a:b] for a, b in parsed.scaffolding] == scaffolding


OPEN = "<tool_call>\n<function=weather>\n"
BAD = {
    "cut within a value": ("qwen3_coder", f"{OPEN}<parameter=city>\nOs", "expected the end of an argument"),
    "cut after an argument": (
        "qwen3_coder",
        f"{OPEN}<parameter=city>\nOslo\n</parameter>\n",
        "expected the end of an argument",
    ),
    "cut after the function": ("qwen3_coder", f"{OPEN}</function>", "expected the closing tag of the call"),
    "no function": ("qwen3_coder", "<tool_call>\nweather\n</tool_call>", "expected the name of a tool"),
    "the JSON of Hermes": (
        "qwen3_coder",
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
        "expected the name of a tool",
    ),
    "an argument without its tag": (
        "qwen3_coder",
        f"{OPEN}Oslo\n</function>\n</tool_call>",
        "expected an argument between its tags",
    ),
    "a parameter twice": (
        "qwen3_coder",
        f"{OPEN}<parameter=city>\na\n</parameter>\n<parameter=city>\nb\n</parameter>\n</function>\n</tool_call>",
        "a key is written twice",
    ),
    "a value that JSON cannot hold": (
        "qwen3_coder",
        f"{OPEN}<parameter=x>\n[NaN]\n</parameter>\n</function>\n</tool_call>",
        "Out of range float",
    ),
    "a key without a value": (
        "glm45",
        "<tool_call>weather\n<arg_key>city</arg_key>\n</tool_call>",
        "closing tag",
    ),
    "a function in GLM's tags": ("glm45", f"{OPEN}</function></tool_call>", "expected the name of a tool"),
    "no list": ("lfm2", "<|tool_call_start|>clock()<|tool_call_end|>", "expected '['"),
    "an empty list": ("lfm2", "<|tool_call_start|>[]<|tool_call_end|>", "expected name(key=value)"),
    "a list that is cut": ("lfm2", "<|tool_call_start|>[clock()", "expected ',', found the end"),
    "a position": ("lfm2", "<|tool_call_start|>[weather('Oslo')]<|tool_call_end|>", "as key=value"),
    "a text that is cut": ("lfm2", "<|tool_call_start|>[weather(city='Os", "quotes that end"),
    "a quote within quotes": (
        "lfm2",
        "<|tool_call_start|>[weather(city='it's')]<|tool_call_end|>",
        "expected ','",
    ),
    "text after the list": ("lfm2", "<|tool_call_start|>[clock()] ok<|tool_call_end|>", "the closing tag"),
    "a text of Gemma's that is cut": ("gemma4", '<|tool_call>call:weather{city:<|"|>Os', "quotes end"),
    "no braces": ("gemma4", "<|tool_call>call:clock<tool_call|>", "expected '{'"),
    "an invoke that does not end": (
        "minimax",
        '<minimax:tool_call>\n<invoke name="clock">\n</minimax:tool_call>',
        "expected an argument between its tags",
    ),
}


@pytest.mark.parametrize(("format", "text", "problem"), BAD.values(), ids=BAD)
def test_what_is_wrong_with_a_call_goes_back_to_the_model(format, text, problem):
    message = parse_calls(text, format, TOOLS).message
    assert message.calls == ()
    assert problem in message.parse_errors[0]
    assert not re.search(r"<\w|</|<\|", message.parse_errors[0]), "no tag, which would be a special token"


@pytest.mark.parametrize("format", sorted({format for format, *_ in GOOD.values()}))
def test_a_call_in_a_thought_is_none(format):
    begins, ends = FORMATS[format].reasoning_tags
    for call in (text.rpartition(ends)[2] for name, text, *_ in GOOD.values() if name == format):
        assert parse_calls(call, format, TOOLS).message.calls
        assert parse_calls(f"{begins}{call}{ends}", format, TOOLS).message.calls == ()
        assert parse_calls(f"{call}{ends}", format, TOOLS, thinking=True).message.calls == ()


@pytest.mark.parametrize("format", sorted({format for format, *_ in GOOD.values()}))
def test_a_format_is_distinguished_from_every_other(format):
    written = [text for name, text, said, _ in GOOD.values() if name == format and len(said.calls) == 1]
    for text in written:
        [call] = parse_calls(text, format, TOOLS).message.calls
        assert detect_format(text, call, TOOLS) in (format, {"glm45": "glm47", "glm47": "glm45"}.get(format))
    assert detect_format("<tool_call>clock\n</tool_call>", CLOCK, TOOLS) == "glm45"
    assert detect_format("<tool_call>clock</tool_call>", CLOCK, TOOLS) == "glm47"
