"""Which ids a turn with tools may go on by."""

import sys

import pytest
import torch
from transformers import AutoTokenizer

from truing.chat import CallGrammars, Dialogue, make_chat
from truing.chat.call_parser import parse_calls
from truing.errors import InvalidValueError, RecipeError
from truing.types.message import ToolSpec

LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {"word": {"type": "string"}}})
NAP = ToolSpec('näp "1"', "Nap.", {"type": "object", "properties": {}})
CALL = '<tool_call>\n{"name": "look", "arguments": {"word": "a"}}\n</tool_call>'


@pytest.fixture(scope="module")
def begin():
    """A turn that begins with ids; the grammars of a tokenizer are made once."""
    made = {}

    def begun(chat, vocab, ids, tools=(LOOK, NAP), prompt=""):
        key = (chat.tokenizer.name_or_path, vocab)
        made.setdefault(key, CallGrammars(chat, vocab))
        ids = torch.tensor(ids, dtype=torch.long)
        return made[key].turn_matcher(Dialogue((), tools, 0, prompt, ids), ids)

    return begun


@pytest.fixture
def walk(chat, begin):
    """A turn of the tiny model's tokenizer, after a text."""
    return lambda text, **more: begin(chat, 259, list(text.encode()), **more)


def letters(walk):
    return "".join(chr(id) for id in walk.allowed_ids().nonzero()[:, 0].tolist() if id < 128)


def test_outside_calls_everything_is_allowed(walk):
    for text in ("", "hello <tool", "<tool_call", CALL, f"{CALL}\n<tool_c", "<think><tool_call>x"):
        assert walk(text).allowed_ids() is None


def test_a_thought_that_the_prompt_opened_is_free_too(walk):
    prompt = "<|im_start|>assistant\n<think>\n"
    assert walk("maybe <tool_call>x", prompt=prompt).allowed_ids() is None
    assert letters(walk("maybe</think><tool_call>", prompt=prompt)) == "\n"


def test_inside_a_call_the_schema_says_what_is_allowed(walk):
    assert letters(walk("x<tool_call>")) == "\n"
    assert letters(walk('<tool_call>\n{"name": "')) == "ln"
    assert letters(walk('<tool_call>\n{"name": "look", "arguments": {')) == '"}'
    assert letters(walk(CALL[:-1])) == ">"
    assert letters(walk(f"<think>hm</think>{CALL}<tool_call>")) == "\n"


def test_a_stop_never_comes_inside_a_call(walk, chat):
    for cut in range(len("<tool_call>"), len(CALL)):
        assert not walk(CALL[:cut]).allowed_ids()[list(chat.stop_ids)].any()


def test_keys_that_the_schema_does_not_name_are_not_written(walk):
    assert letters(walk('<tool_call>\n{"name": "look", "arguments": {"')) == "w"


@pytest.mark.parametrize("text", ['<tool_call>{"name"', '<tool_call>\n{"name": "peek"', f"{CALL[:-12]}}}"])
def test_a_turn_that_breaks_the_grammar_is_an_error_with_a_remedy(walk, text):
    with pytest.raises(InvalidValueError, match="forced_prefix"):
        walk(text)


@pytest.mark.parametrize("name", ["smollm2", "minimind"])
def test_real_tokenizers_write_the_call_that_their_template_writes(data, begin, name):
    """The canonical ids of a call pass, one by one; where one id is left, it is the one that comes."""
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizers" / name)
    chat = make_chat(tokenizer, (tokenizer.eos_token_id,))
    vocab = len(tokenizer) + 8  # models have rows that no token has
    ids = tokenizer(f"I look.{CALL} Done.{CALL}", add_special_tokens=False)["input_ids"]
    walk, forced, tight = begin(chat, vocab, []), 0, 0
    for id in ids:
        allowed = walk.allowed_ids()
        assert allowed is None or allowed[id], (id, tokenizer.decode([id]))
        if allowed is not None and len(allowed.nonzero()) < vocab / 2:
            assert not allowed[len(tokenizer) :].any()
            tight += 1
            forced += int(allowed.sum()) == 1
        walk.accept_token(id)
    assert forced > 20
    assert walk.allowed_ids() is None


def test_a_token_that_opens_a_call_and_goes_on_must_begin_it_rightly(data, begin):
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizers" / "smollm2")
    chat = make_chat(tokenizer, (tokenizer.eos_token_id,))
    ids = tokenizer("<tool_call", add_special_tokens=False)["input_ids"]
    walk = begin(chat, len(tokenizer), ids)
    banned = {tokenizer.decode([id]) for id in (~walk.allowed_ids()).nonzero()[:, 0].tolist()}
    assert "></" in banned
    assert all(text.startswith(">") and len(text) > 1 for text in banned)
    assert walk.allowed_ids()[tokenizer.convert_tokens_to_ids(">")]


def test_names_are_quoted_as_json(walk):
    said = '<tool_call>\n{"name": "näp \\"1\\"", "arguments": {}}\n</tool_call>'
    assert walk(said).allowed_ids() is None
    assert parse_calls(said, "hermes").message.calls[0].name == NAP.name


def test_other_formats_and_bad_schemas_are_refused(chat, walk):
    with pytest.raises(RecipeError, match="mistral"):
        CallGrammars(type(chat)(**vars(chat) | {"tool_format": "mistral"}), 259)
    with pytest.raises(RecipeError, match="schema of a tool"):
        walk("", tools=(ToolSpec("t", "T.", {"type": "no such type"}),))
    with pytest.raises(InvalidValueError, match="plain text"):
        CallGrammars(type(chat)(**vars(chat) | {"stop_ids": (10,)}), 259)


def test_without_the_library_the_extra_is_named(chat, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance.hf", None)
    with pytest.raises(RecipeError, match=r"truing\[grammar\]"):
        CallGrammars(chat, 259)
