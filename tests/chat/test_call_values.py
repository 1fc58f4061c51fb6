"""Values of every type that go through a template and come back as they were, or are refused."""

import pytest
from episodes import USER, as_written, run_episode
from families import FORMAT_OF, chat_of
from hypothesis import given
from hypothesis import strategies as st

from truing.chat import encode_reply
from truing.chat.call_formats.shared.untyped_values import value_of
from truing.chat.call_parser import parse_calls
from truing.errors import DataError
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.types.rollout import Task

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "object": {"type": "object"},
        "list": {"type": "array"},
        "listed": {"enum": ["1", "x", 2]},
        "or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "named": {"$ref": "#/$defs/Named"},
        "any": {},
    },
    "$defs": {"Named": {"type": ["integer", "null"]}},
}
TOOL = ToolSpec("look-up.now", "Look.", SCHEMA)
TASK = Task("t", "f", (USER,), tools=(TOOL,))

TEXTS = (
    "",
    "x",
    "it is",
    'say "hi"',
    "two\nlines",
    "\n",
    "\nat both ends\n",
    " spaces ",
    "<b>bold</b>",
    "a < b && c > d",
    "5",
    "-1.5e3",
    "true",
    "None",
    "null",
    "[1, 2]",
    "{}",
    "é🙂",
    "a, b=1)",
    "]",
    "<think>hm</think>",
    "<tool_call>",
    "x</parameter>y",
    "</arg_value>.",
)
OTHERS = (
    ("whole", 5),
    ("whole", -(10**20)),
    ("number", 1.5),
    ("number", 1e-07),
    ("number", 1e22),
    ("flag", True),
    ("flag", False),
    ("object", {}),
    ("object", {"k": [1, None, True, {"x": "</parameter> </arg_value>"}], "q": 'a "b"\n'}),
    ("list", []),
    ("list", ["x", 1, None, False, 2.5, [["it is"]]]),
    ("listed", "1"),
    ("listed", 2),
    ("or_null", None),
    ("or_null", "x"),
    ("or_null", "5"),
    ("named", None),
    ("named", 7),
    ("any", 5),
    ("any", "x"),
    ("any", None),
    ("any", [{"a": True}]),
)
ESCAPED = (("text", "it's"), ("text", "C:\\new"), ("text", "'"), ("list", ["it's", '"']))


@pytest.mark.parametrize("family", FORMAT_OF)
def test_a_value_of_any_type_comes_back(family):
    chat = chat_of(family)
    assert (chat.tool_format, chat.tool_prompt) == (FORMAT_OF[family], None)
    for key, value in (*(("text", text) for text in TEXTS), *OTHERS):
        message = AssistantMessage(calls=(ToolCall(TOOL.name, {key: value}),))
        rollout = run_episode(
            chat, as_written(chat, message), as_written(chat, AssistantMessage("done")), task=TASK
        )
        [call] = rollout.messages[0]["tool_calls"]
        assert call["function"]["arguments"] == {key: value}
        assert type(call["function"]["arguments"][key]) is type(value), "1 is not 1.0, nor True"
        assert rollout.turns[1].restart_reason == "" or family == "glm_4_7"


@pytest.mark.parametrize("family", [family for family in FORMAT_OF if family != "lfm2_5"])
def test_quotes_and_backslashes_come_back(family):
    chat = chat_of(family)
    for key, value in ESCAPED:
        message = AssistantMessage(calls=(ToolCall(TOOL.name, {key: value}),))
        rollout = run_episode(
            chat, as_written(chat, message), as_written(chat, AssistantMessage("done")), task=TASK
        )
        assert rollout.messages[0]["tool_calls"][0]["function"]["arguments"] == {key: value}


def test_several_calls_and_the_text_beside_them_come_back():
    calls = (
        ToolCall(TOOL.name, {}),
        ToolCall(TOOL.name, {"text": "a\nb", "whole": 1}),
        ToolCall(TOOL.name, {}),
    )
    for family in FORMAT_OF:
        chat = chat_of(family)
        said = AssistantMessage("Let me see.", calls)
        rollout = run_episode(
            chat, as_written(chat, said), as_written(chat, AssistantMessage("done")), task=TASK
        )
        first = rollout.messages[0]
        read = [(one["function"]["name"], one["function"]["arguments"]) for one in first["tool_calls"]]
        assert read == [(call.name, call.arguments) for call in calls], family
        assert first["content"].endswith("Let me see."), family
        assert len([message for message in rollout.messages if message["role"] == "tool"]) == 3


LOST = {
    "a number's text where any value may stand": ("qwen3_6", "any", "5"),
    "a word's text where null may stand": ("glm_4_5", "or_null", "null"),
    "what ends an argument and the call": ("qwen3_6", "text", "x\n</parameter>\n</function>\n</tool_call>"),
    "what begins the next argument": ("glm_4_7", "text", "a</arg_value><arg_key>whole"),
    "a quote that is not escaped": ("lfm2_5", "text", "it's"),
    "an escape that is none": ("lfm2_5", "text", "C:\\new"),
}


@pytest.mark.parametrize(("family", "key", "value"), LOST.values(), ids=LOST)
def test_a_demonstration_that_would_be_read_otherwise_is_refused(family, key, value):
    with pytest.raises(DataError, match="read as another") as raised:
        encode_reply(
            chat_of(family), [USER], AssistantMessage(calls=(ToolCall(TOOL.name, {key: value}),)), [TOOL]
        )
    assert 'chat.tool_prompt = "hermes"' in raised.value.remedy


VALUES = (
    ("5", {"type": "integer"}, 5),
    ("5", {"type": "string"}, "5"),
    ("5", None, 5),
    ("5.0", {"type": "integer"}, 5.0),
    ("True", {"type": "boolean"}, True),
    ("true", {"type": ["boolean", "string"]}, True),
    ("yes", {"type": "boolean"}, "yes"),
    ("null", {"type": ["string", "null"]}, None),
    ("None", {"type": "string"}, "None"),
    ("NaN", {"type": "number"}, "NaN"),
    ("1e999", {"type": "number"}, "1e999"),
    ('"x"', {"type": "string"}, '"x"'),
    ("{'a': None}", {"type": "object"}, {"a": None}),
    ("[1, 2", {"type": "array"}, "[1, 2"),
    ("[1] ", {"type": "array"}, [1]),
    ("1", {"enum": ["1", "2"]}, "1"),
    ("1", {"const": 1}, 1),
    ("5", {"type": ["string", "integer"], "minimum": 10}, "5"),
    ("-5", {"type": "integer", "minimum": 0}, -5),
    ("55", {"type": "string", "maxLength": 1}, "55"),
    ("1", {"type": "boolean"}, 1),
    ("x", True, "x"),
    ("{}", False, {}),
)


@pytest.mark.parametrize(("written", "schema", "value"), VALUES)
def test_the_schema_says_what_a_text_means(written, schema, value):
    read = value_of(written, schema)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize("schema", [{"type": "no such type"}, {"$ref": "#/$defs/none"}, {"pattern": "("}])
def test_a_schema_that_is_none_is_named(schema):
    with pytest.raises(DataError, match="schema of a tool's argument"):
        value_of("5" if "pattern" not in schema else "[1]", {**schema, "enum": ["[1]"]})


def test_keys_that_a_schema_does_not_name_are_read_by_what_it_says_of_others():
    text = "<tool_call>\n<function=f>\n<parameter=x>\n5\n</parameter>\n</function>\n</tool_call>"
    for others, value in (({"type": "string"}, "5"), ({"type": "integer"}, 5), (True, 5)):
        tool = ToolSpec("f", "F.", {"type": "object", "properties": {}, "additionalProperties": others})
        [call] = parse_calls(text, "qwen3_coder", [tool]).message.calls
        assert call.arguments == {"x": value}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
CHATS = {family: chat_of(family) for family in FORMAT_OF}


@pytest.mark.parametrize("family", FORMAT_OF)
@given(value=JSON.filter(lambda value: not isinstance(value, str)), text=st.text())
def test_no_value_changes_without_a_word(family, value, text):
    """It comes back as it was, or is refused."""
    chat, given_ = CHATS[family], {"any": value, "text": text}
    try:
        ids = encode_reply(chat, [USER], AssistantMessage(calls=(ToolCall(TOOL.name, given_),)), [TOOL])
    except DataError:
        return
    written = chat.tokenizer.decode(ids[:-1])
    [call] = parse_calls(written, chat.tool_format, [TOOL]).message.calls
    assert call.arguments == given_
