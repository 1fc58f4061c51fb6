"""Calls as each family writes them, and what becomes of those that are not as they should be."""

import pytest

from truing.chat.call_formats import FORMATS
from truing.chat.call_parser import detect_format, parse_calls
from truing.errors import ModelError
from truing.types.message import AssistantMessage, ToolCall

WEATHER = ToolCall("weather", {"city": "Oslo", "days": 3})
CLOCK = ToolCall("clock", {})

GOOD = {
    "one call": (
        "hermes",
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>',
        AssistantMessage("", (WEATHER,)),
        ['<tool_call>\n{"name": "', '", "arguments": {"city": "', '", "days": ', "}}\n</tool_call>"],
    ),
    "arguments first, and text before": (
        "hermes",
        'Let me see.\n<tool_call>{"arguments":{},"name":"clock"}</tool_call>\n',
        AssistantMessage("Let me see.\n", (CLOCK,)),
        ['\n<tool_call>{"arguments":{},"name":"', '"}</tool_call>'],
    ),
    "two calls": (
        "hermes",
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>',
        AssistantMessage("", (CLOCK, WEATHER)),
        [
            '<tool_call>\n{"name": "',
            '", "arguments": {}}\n</tool_call>',
            '\n<tool_call>\n{"name": "',
            '", "arguments": {"city": "',
            '", "days": ',
            "}}\n</tool_call>",
        ],
    ),
    "everything in a nested value is the model's choice": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x" : {"y": [1, "</tool_call>"]} }}</tool_call>',
        AssistantMessage("", (ToolCall("a", {"x": {"y": [1, "</tool_call>"]}}),)),
        ['<tool_call>{"name": "', '", "arguments": {"x" : ', " }}</tool_call>"],
    ),
    "an empty text is a choice, and its quotes are all there is of it": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": ""}}</tool_call>',
        AssistantMessage("", (ToolCall("a", {"x": ""}),)),
        ['<tool_call>{"name": "', '", "arguments": {"x": ', "}}</tool_call>"],
    ),
    "the whole answer": (
        "llama3",
        '{"name": "weather", "parameters": {"city": "Oslo", "days": 3}}',
        AssistantMessage("", (WEATHER,)),
        ['{"name": "', '", "parameters": {"city": "', '", "days": ', "}}"],
    ),
    "python tag and JSON": (
        "llama3",
        'So:<|python_tag|>{"name": "clock", "parameters": {}}',
        AssistantMessage("So:", (CLOCK,)),
        ['<|python_tag|>{"name": "', '", "parameters": {}}'],
    ),
    "python tag and a method": (
        "llama3",
        '<|python_tag|>weather.call(city="Oslo", days=3)',
        AssistantMessage("", (WEATHER,)),
        ["<|python_tag|>", '.call(city="', '", days=', ")"],
    ),
    "python's own words and quotes": (
        "llama3",
        "<|python_tag|>say(text='it\\'s \"so\"', loud=True, to=None)",
        AssistantMessage("", (ToolCall("say", {"text": 'it\'s "so"', "loud": True, "to": None}),)),
        ["<|python_tag|>", "(text='", "', loud=", ", to=", ")"],
    ),
    "a list, with an id": (
        "mistral",
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo", "days": 3}, "id": "abcDEF012"}]',
        AssistantMessage("", (ToolCall("weather", WEATHER.arguments, "abcDEF012"),)),
        ['[TOOL_CALLS] [{"name": "', '", "arguments": {"city": "', '", "days": ', '}, "id": "', '"}]'],
    ),
    "names and arguments": (
        "mistral",
        'Well.[TOOL_CALLS]clock[ARGS]{}[TOOL_CALLS]weather{"city": "Oslo", "days": 3}',
        AssistantMessage("Well.", (CLOCK, WEATHER)),
        ["[TOOL_CALLS]", "[ARGS]{}", "[TOOL_CALLS]", '{"city": "', '", "days": ', "}"],
    ),
    "fenced, two in a block": (
        "deepseek",
        "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        '{"city": "Oslo", "days": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        AssistantMessage("Hm.", (CLOCK, WEATHER)),
        [
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "\n```json\n{}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            '\n```json\n{"city": "',
            '", "days": ',
            "}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ],
    ),
    "bare": (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        AssistantMessage("", (CLOCK,)),
        [
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ],
    ),
    "recipient in the channel": (
        "gptoss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.weather <|constrain|>json<|message|>{"city": "Oslo", "days": 3}',
        AssistantMessage("Hm.", (WEATHER,)),
        [
            "<|start|>assistant<|channel|>commentary to=functions.",
            ' <|constrain|>json<|message|>{"city": "',
            '", "days": ',
            "}",
        ],
    ),
    "recipient in the role": (
        "gptoss",
        " to=functions.clock<|channel|>commentary json<|message|>{}<|call|>",
        AssistantMessage("", (CLOCK,)),
        [" to=functions.", "<|channel|>commentary json<|message|>{}<|call|>"],
    ),
}


@pytest.mark.parametrize(("format", "text", "said", "scaffolding"), GOOD.values(), ids=GOOD)
def test_a_call_as_its_family_writes_it(format, text, said, scaffolding):
    parsed = parse_calls(text, format)
    assert parsed.message == said
    assert [text[a:b] for a, b in parsed.scaffolding] == scaffolding


BAD = {
    "unclosed": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {}}',
        "expected the closing tag, found the end",
    ),
    "text within the tags": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {}} ok</tool_call>',
        "expected the closing tag, found 'o'",
    ),
    "where in the JSON": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": oops}}</tool_call>',
        "Expecting value (character 33 of the call)",
    ),
    "no name": ("hermes", '<tool_call>{"arguments": {}}</tool_call>', "the key 'name' is missing"),
    "no arguments": ("hermes", '<tool_call>{"name": "a"}</tool_call>', "the key 'arguments' is missing"),
    "a key twice": (
        "hermes",
        '<tool_call>{"name": "a", "name": "b", "arguments": {}}</tool_call>',
        "a key is written twice",
    ),
    "a nested key twice": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": {"y": 1, "y": 2}}}</tool_call>',
        "a key is written twice",
    ),
    "an unknown key": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {}, "id": "abcdefghi"}</tool_call>',
        "keys other than 'name' and 'arguments'",
    ),
    "arguments as a text": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": "{}"}</tool_call>',
        "expected '{'",
    ),
    "a name that is none": ("hermes", '<tool_call>{"name": 7, "arguments": {}}</tool_call>', "not a text"),
    "not a number": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>',
        "Out of range float",
    ),
    "infinite": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": -1e999}}</tool_call>',
        "Out of range float",
    ),
    "half a character": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": "\\ud800"}}</tool_call>',
        "surrogates not allowed",
    ),
    "a very long number": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": %s}}</tool_call>' % ("9" * 5000),
        "Exceeds the limit",
    ),
    "65 levels": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": %s}}</tool_call>' % ("[" * 64 + "]" * 64),
        "nested deeper than 64 levels",
    ),
    "very deep": (
        "hermes",
        '<tool_call>{"name": "a", "arguments": {"x": %s' % ("[" * 10**5),
        "nested deeper than 64 levels",
    ),
    "text after the call": ("llama3", '{"name": "a", "parameters": {}} ok', "text follows the call"),
    "another family's key": ("llama3", '{"name": "a", "arguments": {}}', "the key 'parameters' is missing"),
    "python code": ("llama3", "<|python_tag|>print(1)", "each argument once, as key=value"),
    "an escape that is none": ("llama3", "<|python_tag|>a(x='\\q')", "Invalid \\escape"),
    "an argument twice": ("llama3", "<|python_tag|>a(x=1, x=2)", "each argument once"),
    "no calls in the list": ("mistral", "[TOOL_CALLS][]", "expected '{'"),
    "an id that no template takes": (
        "mistral",
        '[TOOL_CALLS][{"name": "a", "arguments": {}, "id": "7"}]',
        "nine letters and digits",
    ),
    "no arguments for the name": ("mistral", "[TOOL_CALLS]a", "expected '{', found the end"),
    "half a tag": ("mistral", "[TOOL_CALLS]a[AR", "expected arguments"),
    "no name in the block": (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}",
        "the name of a tool",
    ),
    "unclosed block": (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        "the opening tag of a call, found the end",
    ),
    "no header": ("gptoss", "<|channel|>commentary to=functions.a json", "the end of the header"),
    "text after the arguments": (
        "gptoss",
        "<|channel|>commentary to=functions.a<|message|>{} ok",
        "expected the end of the message",
    ),
}


@pytest.mark.parametrize(("format", "text", "told"), BAD.values(), ids=BAD)
def test_a_malformed_call_is_reported_and_not_carried_out(format, text, told):
    parsed = parse_calls(text, format)
    assert len(parsed.message.parse_errors) == 1
    assert told in parsed.message.parse_errors[0]
    assert parsed.message.parse_errors[0].endswith(f"Write {FORMATS[format].description}.")
    assert parsed.message.calls == ()
    assert parsed.scaffolding == ()


@pytest.mark.parametrize(("format", "text"), [(format, text) for format, text, _ in BAD.values()], ids=BAD)
def test_a_problem_cannot_write_special_tokens(format, text):
    [problem] = parse_calls(text, format).message.parse_errors
    assert not any(sign in problem for sign in ("<|", "<｜", "_call>", "[TOOL", "[ARGS"))


def test_64_levels_are_read():
    text = '<tool_call>{"name": "a", "arguments": {"x": %s}}</tool_call>' % ("[" * 63 + "]" * 63)
    assert parse_calls(text, "hermes").message.parse_errors == ()


def test_one_malformed_call_stops_the_others_and_each_is_reported():
    good, bad = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>', "<tool_call>clock</tool_call>"
    message = parse_calls(f"{bad}{good}{bad}", "hermes").message
    assert [problem[:7] for problem in message.parse_errors] == ["Call 1 ", "Call 3 "]
    assert message.calls == ()
    assert message.content == f"{bad}{good}{bad}"  # the model sees what it wrote


def test_only_the_first_malformed_calls_are_reported():
    assert len(parse_calls("<tool_call>x</tool_call>" * 20, "hermes").message.parse_errors) == 8


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", ["", "Oslo.", ' {"answer": 1}\n', "<think>hm</think>"])
def test_an_answer_without_calls_is_left_as_it_is(format, text):
    assert parse_calls(text, format).message == AssistantMessage(text)


CALL = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "thinking", "calls"),
    [
        (f"<think>{CALL}</think>", False, 0),
        (f"<think>{CALL}", False, 0),
        (f"<think>{CALL}</think>{CALL}", False, 1),
        (f"{CALL}<think>{CALL}</think>{CALL}", False, 2),
        (f"{CALL}</think>{CALL}", True, 1),
        (CALL, True, 0),
    ],
)
def test_a_call_in_a_thought_is_no_call(text, thinking, calls):
    message = parse_calls(text, "hermes", thinking=thinking).message
    assert len(message.calls) == calls
    assert message.parse_errors == ()


def test_a_thought_in_an_argument_is_an_argument():
    text = '<tool_call>{"name": "say", "arguments": {"text": "<think>"}}</tool_call>' + CALL
    assert [call.name for call in parse_calls(text, "hermes").message.calls] == ["say", "clock"]


def test_a_thought_before_a_whole_answer():
    message = parse_calls('<think>hm</think>\n{"name": "clock", "parameters": {}}', "llama3").message
    assert message == AssistantMessage("<think>hm</think>", (CLOCK,))


def test_a_final_message_is_said_without_its_analysis():
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Oslo."
    assert parse_calls(text, "gptoss").message == AssistantMessage("Oslo.")


def test_the_format_is_found_by_reading_a_call_back():
    written = {format: text for format, text, said, _ in GOOD.values() if said.calls == (WEATHER,)}
    assert {detect_format(text, WEATHER) for text in written.values()} == {"hermes", "llama3", "gptoss"}
    assert all(detect_format(text, WEATHER) == format for format, text in written.items())
    assert detect_format(GOOD["a list, with an id"][1], WEATHER) == "mistral"
    assert detect_format(GOOD["bare"][1], CLOCK) == "deepseek"
    assert detect_format("<tool_call>\n<function=weather>\n</function>\n</tool_call>", WEATHER) is None
    assert detect_format(written["hermes"], CLOCK) is None


def test_an_unknown_format_is_named():
    with pytest.raises(ModelError, match="hermes, llama3"):
        parse_calls("", "xml")
