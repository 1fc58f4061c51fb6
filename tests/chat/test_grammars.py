"""The grammar of each format: what a template writes may be drawn, and nothing that a tool would refuse."""

import json
import random

import pytest
import torch
from families import FORMAT_OF, chat_of
from jsonschema import Draft202012Validator

from truing.chat import CallGrammars, Dialogue
from truing.chat.call_formats import FORMATS
from truing.chat.call_parser import parse_calls
from truing.errors import InvalidValueError, RecipeError
from truing.types.message import AssistantMessage, ToolCall, ToolSpec

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "short": {"type": "string", "minLength": 2, "maxLength": 4},
        "day": {"type": "string", "format": "date"},
        "letters": {"type": "string", "pattern": "^[a-c]+$"},
        "whole": {"type": "integer", "minimum": 0, "maximum": 50},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "listed": {"enum": ["x", "a b", 2]},
        "or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "size": {"$ref": "#/$defs/Size"},
        "object": {
            "type": "object",
            "properties": {"k": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
            "required": ["k"],
            "additionalProperties": False,
        },
    },
    "required": ["text"],
    "$defs": {"Size": {"type": ["integer", "null"]}},
}
LOOK = ToolSpec("look", "Look.", SCHEMA)
NAP = ToolSpec("nap", "Nap.", {"type": "object", "properties": {}})
TOOLS = (LOOK, NAP)
RIGHT = (
    {"text": "x"},
    {"text": ""},
    {"text": "a < b\n</b> {\"k\": 'v'} [é🙂]", "short": "ab", "day": "2026-11-24", "letters": "abc"},
    {"text": "5", "whole": 50, "number": -1.5, "flag": True, "listed": "a b", "or_null": "x"},
    {"text": "</parameter", "flag": False, "listed": 2, "or_null": None, "size": None},
    {"text": "x", "size": 7, "object": {"k": [1, 2]}},
)
WRONG = (
    {},
    {"text": "x", "short": "a"},
    {"text": "x", "short": "abcde"},
    {"text": "x", "day": "2026-13-01"},
    {"text": "x", "letters": "abd"},
    {"text": "x", "whole": 51},
    {"text": "x", "whole": "many"},
    {"text": "x", "flag": "yes"},
    {"text": "x", "listed": "y"},
    {"text": "x", "size": "big"},
    {"text": "x", "object": {"k": [1, 2, 3]}},
    {"text": "x", "object": {}},
    {"text": "x", "other": 1},
)
CASES = [(family, tags) for family in FORMAT_OF for tags in (True, False)]
MADE = {}


ENDS = {
    "qwen3_coder": "\n</parameter>\n",
    "glm45": "</arg_value>",
    "glm47": "</arg_value>",
    "lfm2": "'",
}
LETTERS = set(b"abcxyz 0129.-,:<>/'\"{}[]()\n")


def start_turn(family, tags, tools=TOOLS):
    """A turn that is drawn, and the ids of a text."""
    if (family, tags) not in MADE:
        chat = chat_of(family, tags=tags)
        MADE[family, tags] = chat, CallGrammars(chat, len(chat.tokenizer))
    chat, grammars = MADE[family, tags]
    empty = torch.tensor([], dtype=torch.long)
    return chat, grammars.turn_matcher(Dialogue((), tools, 0, "", empty), empty)


def call_ids(chat, name, arguments):
    """A call's ids as the template writes it, without what stands around it."""
    message = AssistantMessage(calls=(ToolCall(name, arguments),))
    tag, closing = FORMATS[chat.tool_format].opening_tag, FORMATS[chat.tool_format].closing
    whole = chat.render_text([{"role": "user", "content": "q"}, message.to_dict()], prompt=False)
    text = tag + whole.partition(tag)[2].rpartition(closing)[0] + closing
    return chat.tokenizer(text, add_special_tokens=False)["input_ids"]


def goes_through(walk, ids):
    """Whether each id may be drawn in its turn, and the call is over then."""
    for id in ids:
        allowed = walk.allowed_ids()
        if allowed is not None and not allowed[id]:
            return False
        walk.accept_token(id)
    return walk.allowed_ids() is None


@pytest.mark.parametrize(("family", "tags"), CASES)
def test_what_the_template_writes_may_be_drawn(family, tags):
    for arguments in RIGHT:
        if family == "lfm2_5":  # its template cannot write a quote
            arguments = {**arguments, "text": arguments["text"].replace("'", "")}
        chat, walk = start_turn(family, tags)
        assert goes_through(walk, call_ids(chat, "look", arguments)), arguments
    chat, walk = start_turn(family, tags)
    assert goes_through(walk, call_ids(chat, "nap", {}))


@pytest.mark.parametrize(("family", "tags"), CASES)
def test_what_a_tool_would_refuse_may_not(family, tags):
    for arguments in WRONG:
        chat, walk = start_turn(family, tags)
        assert not goes_through(walk, call_ids(chat, "look", arguments)), arguments
    for name, arguments in (("peek", {}), ("nap", {"text": "x"}), ("loo", {"text": "x"})):
        chat, walk = start_turn(family, tags)
        assert not goes_through(walk, call_ids(chat, name, arguments))


@pytest.mark.parametrize(("family", "tags"), CASES)
def test_no_stop_comes_within_a_call(family, tags):
    chat, walk = start_turn(family, tags)
    ids = call_ids(chat, "look", {"text": "ab", "whole": 5})
    for id in ids[:-1]:
        walk.accept_token(id)
        if (allowed := walk.allowed_ids()) is not None:
            assert not allowed[list(chat.stop_ids)].any()


@pytest.mark.parametrize(("family", "tags"), CASES)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_drawn_is_read_as_a_valid_call(family, tags, seed):
    chat, walk = start_turn(family, tags)
    ids = chat.tokenizer(FORMATS[chat.tool_format].opening_tag, add_special_tokens=False)["input_ids"]
    for id in ids:
        walk.accept_token(id)
    source, ends = random.Random(seed), list[int]()
    while (allowed := walk.allowed_ids()) is not None:
        free = allowed.nonzero()[:, 0].tolist()
        if len(ids) > 100 and len(free) > 100 and not ends:  # a text that could go on for ever
            ends = chat.tokenizer(ENDS[chat.tool_format], add_special_tokens=False)["input_ids"]
        plain = [id for id in free if id in LETTERS and len(ids) < 300]
        ids.append(ends.pop(0) if ends and ends[0] in free else source.choice(plain or free))
        walk.accept_token(ids[-1])
    text = chat.tokenizer.decode(ids)
    message = parse_calls(text, chat.tool_format, TOOLS).message
    assert message.parse_errors == ()
    for call in message.calls:
        schema = {"additionalProperties": False, **(LOOK if call.name == "look" else NAP).parameters}
        assert list(Draft202012Validator(schema).iter_errors(dict(call.arguments))) == [], text


def test_other_keys_are_written_where_the_schema_says_so():
    others = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    tools = (ToolSpec("look", "Look.", others),)
    for family in ("qwen3_6", "glm_4_5", "lfm2"):
        for arguments, right in (
            ({"b": 5}, True),
            ({"a": "x", "b": 5}, True),
            ({"b": "x"}, False),
            ({"a": 5}, None),
        ):
            chat, walk = start_turn(family, True, tools)
            if right is not None:
                assert goes_through(walk, call_ids(chat, "look", arguments)) is right, (family, arguments)


BEYOND = (
    ("a keyword of texts", {"type": "string", "not": {"const": "x"}}),
    ("two schemas at once", {"allOf": [{"minLength": 1}, {"maxLength": 3}]}),
    ("a reference to nothing", {"$ref": "#/$defs/none"}),
)


@pytest.mark.parametrize(("name", "schema"), BEYOND, ids=[name for name, _ in BEYOND])
@pytest.mark.parametrize("family", ["qwen3_6", "lfm2"])
def test_what_a_grammar_cannot_hold_to_is_refused(family, name, schema):
    tool = ToolSpec("look", "Look.", {"type": "object", "properties": {"text": schema}})
    with pytest.raises(RecipeError, match="schema of a tool"):
        start_turn(family, True, (tool,))


def test_a_name_that_could_not_be_read_back_is_refused():
    for name in ("look at", "look>"):
        with pytest.raises(RecipeError, match="a name cannot be written"):
            start_turn("qwen3_6", True, (ToolSpec(name, "Look.", {"type": "object", "properties": {}}),))


def test_a_turn_that_breaks_the_grammar_is_an_error():
    chat, walk = start_turn("qwen3_6", True)
    ids = call_ids(chat, "peek", {})
    with pytest.raises(InvalidValueError, match="does not allow"):
        list(map(walk.accept_token, ids))


def test_formats_without_a_grammar_are_named():
    chat = chat_of("qwen3_6")
    with pytest.raises(RecipeError, match="gemma4") as raised:
        CallGrammars(type(chat)(**vars(chat) | {"tool_format": "gemma4"}), 300)
    assert "hermes, qwen3_coder, glm45" in raised.value.expected


def test_json_values_keep_the_white_space_of_templates():
    chat, walk = start_turn("glm_4_7", True)
    ids = call_ids(chat, "look", {"text": "x", "object": {"k": [1, 2]}})
    assert json.dumps({"k": [1, 2]}) in chat.tokenizer.decode(ids)
    tight = chat.tokenizer.decode(ids).replace(", 2]", ",2]")
    assert not goes_through(walk, chat.tokenizer(tight, add_special_tokens=False)["input_ids"])
