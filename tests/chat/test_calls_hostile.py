"""No text makes the reader of calls raise, hang, or mask what is not there."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truing.chat.call_formats import FORMATS
from truing.chat.call_parser import ParsedCalls, parse_calls
from truing.types.message import ToolSpec

PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    '{"name": "a", "arguments": {"x": "y"}}',
    '{"name": "a", "parameters": {}}',
    '{"name": ',
    '"arguments": {',
    "<|python_tag|>",
    "a.call(",
    "x='y'",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[{",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "a<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|channel|>commentary to=functions.a<|message|>",
    "<|call|>",
    "<function=a>",
    "<parameter=x>",
    "</parameter>",
    "</function>",
    "<arg_key>x</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|tool_call_start|>",
    "[a(x='y', z=[None",
    "<|tool_call_end|>",
    "<|tool_call>call:a{x:",
    '<|"|>',
    "<tool_call|>",
    '<minimax:tool_call><invoke name="a">',
    '<parameter name="x">',
    "</invoke></minimax:tool_call>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    *"{}[]()\"'\\:,=0 \n\udc80é",
]

TOOL = ToolSpec(
    "a", "A.", {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "array"}, "z": {}}}
)

TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))


def check(text: str, parsed: ParsedCalls) -> None:
    edges = [edge for span in parsed.scaffolding for edge in span]
    assert edges == sorted(set(edges))
    assert not edges or (edges[0] >= 0 and edges[-1] <= len(text))
    assert bool(parsed.scaffolding) == bool(parsed.message.calls)
    assert not (parsed.message.calls and parsed.message.parse_errors)


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None)
@given(text=TEXTS)
def test_any_text_is_read(format, text):
    check(text, parse_calls(text, format, [TOOL]))
    check(text, parse_calls(text, format, thinking=True))


GOOD = {
    "hermes": '<tool_call>\n{"name": "a", "arguments": {"x": "é", "y": [1]}}\n</tool_call>',
    "llama3": '{"name": "a", "parameters": {"x": "é", "y": [1]}}',
    "mistral": '[TOOL_CALLS][{"name": "a", "arguments": {"x": "é", "y": [1]}, "id": "abcdefghi"}]',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>"
    '{"x": "é", "y": [1]}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "qwen3_coder": "<tool_call>\n<function=a>\n<parameter=x>\né\n</parameter>\n<parameter=y>\n[1]\n"
    "</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>a\n<arg_key>x</arg_key>\n<arg_value>é</arg_value>\n<arg_key>y</arg_key>\n"
    "<arg_value>[1]</arg_value>\n</tool_call>",
    "glm47": "<tool_call>a<arg_key>x</arg_key><arg_value>é</arg_value><arg_key>y</arg_key>"
    "<arg_value>[1]</arg_value></tool_call>",
    "lfm2": "<|tool_call_start|>[a(x='é', y=[1])]<|tool_call_end|>",
    "gemma4": '<|tool_call>call:a{x:<|"|>é<|"|>,y:[1]}<tool_call|>',
    "minimax": '<minimax:tool_call>\n<invoke name="a">\n<parameter name="x">é</parameter>\n'
    '<parameter name="y">[1]</parameter>\n</invoke>\n</minimax:tool_call>',
    "seed_oss": "<seed:tool_call>\n<function=a>\n<parameter=x>é</parameter>\n<parameter=y>[1]</parameter>\n"
    "</function>\n</seed:tool_call>",
    "gptoss": '<|channel|>commentary to=functions.a <|constrain|>json<|message|>{"x": "é", "y": [1]}',
}


@pytest.mark.parametrize("format", FORMATS)
def test_the_examples_are_calls(format):
    [call] = parse_calls(GOOD[format], format).message.calls
    assert (call.name, call.arguments) == ("a", {"x": "é", "y": [1]})


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None)
@given(data=st.data())
def test_a_call_with_a_change_is_read(format, data):
    text = GOOD[format]
    place = data.draw(st.integers(0, len(text)))
    lost = data.draw(st.integers(0, 3))
    text = text[:place] + data.draw(st.sampled_from(["", *PIECES])) + text[place + lost :]
    check(text, parse_calls(text, format))


@pytest.mark.parametrize(
    "piece", ["a", " ", "\n", "[", '"', "\\", *PIECES[:37], '<tool_call>{"a":x</tool_call>']
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_million_characters_take_a_moment(format, piece):
    text = GOOD[format][:-12] + piece * (10**6 // len(piece))
    start = time.process_time()
    check(text, parse_calls(text, format))
    assert time.process_time() - start < 3  # 0.01 s on a free core; anything quadratic takes minutes
