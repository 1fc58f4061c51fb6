"""Which tokens of a row are trained; rows and arguments that do not fit are one error."""

import pytest

from truing.errors import DataError, RecipeError
from truing.models.tiny import byte_tokenizer
from truing.trl import SFTConfig, SFTTrainer
from truing.trl.data.demonstrations import demonstrated_turns
from truing.trl.data.sft_rows import sft_rows
from truing.trl.data.texts import demonstrated_texts, dropped_note

SAID = [{"role": role, "content": "a"} for role in ("user", "assistant", "user", "assistant")]
PAIR = {"prompt": "a", "completion": "b"}
SAID_PAIR = {"prompt": SAID[:3], "completion": SAID[3:]}


def read(texts):
    rows = [{"text": text} for text in texts]
    return sft_rows(rows, "train_dataset", SFTConfig("x"), None).conversations


def kind(row, function=None, **arguments):
    rows = sft_rows([row], "train_dataset", SFTConfig("x", **arguments), function)
    return {"whole": rows.whole, "text": rows.text}


@pytest.mark.parametrize(
    ("row", "arguments", "expected"),
    [
        ({"text": "a"}, {}, {"whole": True, "text": True}),
        ({"story": "a"}, {"dataset_text_field": "story"}, {"whole": True, "text": True}),
        ({"text": "a", **PAIR}, {}, {"whole": False, "text": True}),
        (PAIR, {"completion_only_loss": False}, {"whole": True, "text": True}),
        (SAID_PAIR, {}, {"whole": False, "text": False}),
        ({"messages": SAID}, {}, {"whole": True, "text": False}),
        ({"messages": SAID}, {"assistant_only_loss": True}, {"whole": False, "text": False}),
        ({"a": "b"}, {"function": lambda row: row["a"]}, {"whole": True, "text": True}),
    ],
)
def test_the_arguments_say_what_is_trained(row, arguments, expected):
    assert kind(row, **arguments) == expected


def test_the_turns_of_a_prompt_are_trained_too():
    both = {"completion_only_loss": False, "assistant_only_loss": True}
    rows = sft_rows([SAID_PAIR], "train_dataset", SFTConfig("x", **both), None)
    (read,) = rows.conversations
    assert (rows.whole, len(demonstrated_turns(read).turns)) == (False, 2)


@pytest.mark.parametrize(
    ("row", "arguments", "text"),
    [
        ({"conversations": SAID}, {}, "rename_column\\('conversations', 'messages'\\)"),
        ({"instruction": "a", "output": "b"}, {}, 'row."output".'),
        ({"story": "a"}, {}, "dataset_text_field"),
        ({"input_ids": [1, 2]}, {}, "give the texts or messages"),
        ({"text": SAID}, {}, "rename_column\\('text', 'messages'\\)"),
        ({"text": "a"}, {"assistant_only_loss": True}, "has no messages"),
        (PAIR, {"assistant_only_loss": True}, "has no messages"),
        (PAIR, {"function": str}, "column prompt(.|\n)*leave it out"),
        ({"messages": SAID}, {"function": str}, "column messages"),
        ({"a": "b"}, {"function": str, "completion_only_loss": True}, "whole texts"),
        ({"a": "b"}, {"function": lambda row: [row["a"]]}, "one row at a time"),
        ({"a": "b"}, {"function": lambda row: row["c"]}, "raised KeyError for row 0: 'c'"),
    ],
)
def test_rows_that_do_not_fit_are_refused(row, arguments, text):
    with pytest.raises(DataError, match=text):
        kind(row, **arguments)


def test_all_tokens_of_a_text_but_the_first_are_trained():
    tokenizer, args = byte_tokenizer(), SFTConfig("x", max_length=4)
    cut, ended = demonstrated_texts(read(["abcdef", "a"]), args, tokenizer)
    assert (cut.token_ids, cut.context) == (tuple(b"abcd"), 1)
    assert ended.token_ids == (*b"a", tokenizer.eos_token_id)
    kept_end = SFTConfig("x", max_length=2, truncation_mode="keep_end")
    (end,) = demonstrated_texts(read(["abc"]), kept_end, tokenizer)
    assert end.token_ids == (*b"c", tokenizer.eos_token_id)
    with pytest.raises(DataError, match="row 0 of train_dataset has no token to train"):
        [*demonstrated_texts(read([""]), args, tokenizer)]


def test_the_rows_of_an_evaluation_are_of_the_same_kind(tmp_path):
    with pytest.raises(DataError, match="rows of different kinds"):
        SFTTrainer("tiny", SFTConfig(str(tmp_path)), train_dataset=[{"text": "a"}], eval_dataset=[PAIR])


TOOL = {"type": "function", "function": {"name": "double", "description": "Doubles.", "parameters": {}}}
CALL = {"type": "function", "function": {"name": "double", "arguments": {"number": 3}}}
CALLING = [
    {"role": "user", "content": "Double 3."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "6"},
]
CONTENT_ONLY = "{% for message in messages %}{{ message.content }}{% endfor %}"
REFUSES = "{{ raise_exception('no tools') }}"


@pytest.mark.parametrize(
    ("row", "template", "lost"),
    [
        ({"messages": SAID}, CONTENT_ONLY, ""),
        ({"messages": CALLING}, CONTENT_ONLY, "row 1 the call of double"),
        ({"messages": SAID, "tools": [TOOL]}, CONTENT_ONLY, "row 1 the tool double"),
        ({"messages": SAID}, "{{ messages[0].role }}", "row 1 the content of user, 'a'"),
    ],
)
def test_what_the_template_leaves_out_is_noted(row, template, lost):
    rows = [{"messages": [{"role": "user", "content": "user"}]}, row]
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    conversations = sft_rows(rows, "train_dataset", SFTConfig("x"), None).conversations
    note = dropped_note(conversations, tokenizer, "train_dataset")
    assert note.endswith(lost) if lost else not note


def test_a_template_that_refuses_a_conversation_is_named():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = REFUSES
    rows = sft_rows([{"messages": SAID}], "train_dataset", SFTConfig("x"), None).conversations
    with pytest.raises(DataError, match=r"does not render row 0 of train_dataset(.|\n)*no tools"):
        next(demonstrated_texts(rows, SFTConfig("x"), tokenizer))


def test_the_template_of_a_path_is_that_of_the_saved_tokenizer(tmp_path):
    path = tmp_path / "own.jinja"
    path.write_text(CONTENT_ONLY, encoding="utf-8")
    args = {"use_cpu": True, "chat_template_path": str(path)}
    trainer = SFTTrainer("tiny", SFTConfig(str(tmp_path), **args), train_dataset=[{"messages": SAID}])
    assert trainer.processing_class.chat_template == CONTENT_ONLY
    assert trainer.env.tasks("train")[0].messages[0]["content"] == "aaaa"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"chat_template_path": "missing.jinja"}, "name a .jinja file"), ({"max_length": 1}, "max_length=1")],
)
def test_arguments_that_give_no_row_are_refused(tmp_path, arguments, text):
    with pytest.raises(RecipeError, match=text):
        SFTTrainer("tiny", SFTConfig(str(tmp_path), **arguments), train_dataset=[{"text": "a"}])
