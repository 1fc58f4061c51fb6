"""Rows of text, rows with nothing to train, and what of a conversation is context."""

import copy
import json

import pytest
from odd_rows import PATHS, TEMPLATES, TOKENIZER, answer, call, chat_of, chat_with, played, said, user

from truing.chat import render_prompt
from truing.errors import DataError
from truing.trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer
from truing.trl.data.demonstrations import ENDS_UNANSWERED, OPENS_UNASKED
from truing.trl.models import RAW_BEGINNING, RAW_TEMPLATE

TURNS = {"assistant_only_loss": True}


@pytest.mark.parametrize(("trainer", "config"), [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)])
def test_a_prompt_of_text_is_tokenized_as_it_is(trainer, config, tmp_path):
    text = TOKENIZER.apply_chat_template([user("Is 91 prime?")], tokenize=False, add_generation_prompt=True)
    args = config(str(tmp_path), use_cpu=True, max_steps=1)
    rows = [{"prompt": text, "tools": "[]", "chat_template_kwargs": {"mood": 1}}]
    made = trainer("tiny", lambda completions, **_: [0.0], args, rows * args.per_device_train_batch_size)
    (task, *_) = made.env.tasks("train")
    assert render_prompt(chat_with(made._template), task).token_ids.tolist() == TOKENIZER(text)["input_ids"]
    assert "chat_template_kwargs" in "".join(made.env.notes)


@pytest.mark.parametrize("end", ["", "<|im_end|>"])
def test_a_completion_of_text_ends_once(end, tmp_path):
    text = TOKENIZER.apply_chat_template([user("Is 91 prime?")], tokenize=False, add_generation_prompt=True)
    args = SFTConfig(str(tmp_path), use_cpu=True, max_steps=1)
    made = SFTTrainer("tiny", args, train_dataset=[{"prompt": text, "completion": f"No.{end}"}])
    read = played(made.env, chat_with(made._template))
    assert (read.text, read.trained) == (f"{text}No.<|im_end|>", "No.<|im_end|>")


def test_a_bos_that_the_text_has_is_not_doubled():
    tokenizer = copy.copy(TOKENIZER)
    tokenizer.chat_template = RAW_BEGINNING + RAW_TEMPLATE
    tokenizer.bos_token = "<|im_start|>"
    for text in ("a", "<|im_start|>a"):
        assert (
            tokenizer.apply_chat_template([{"role": "text", "content": text}], tokenize=False)
            == "<|im_start|>a"
        )


@pytest.mark.parametrize(
    ("row", "arguments", "text"),
    [
        ({"messages": "[{"}, {}, "'messages' of train_dataset has text"),
        ({"prompt": "a", "completion": [said("b")]}, {}, "row 0 of train_dataset has text beside messages"),
        ({"prompt": [user("a")], "completion": "b"}, {}, "row 0 of train_dataset has text beside messages"),
        ({"prompt": [user("a")], "completion": [user("b")]}, {}, "no turn of the assistant to train"),
        ({"messages": [said("a")]}, TURNS, "no turn of the assistant to train"),
        (
            {"messages": [user("a"), said("b", weight=0)]},
            {"assistant_only_loss": True},
            "marked as not to be",
        ),
    ],
)
def test_rows_without_anything_to_train(row, arguments, text, tmp_path):
    with pytest.raises(DataError, match=text):
        SFTTrainer("tiny", SFTConfig(str(tmp_path), use_cpu=True, **arguments), train_dataset=[row])


def test_messages_as_json_text_are_messages(tmp_path):
    said_text = json.dumps([user("Is 91 prime?"), said("No.")])
    args = SFTConfig(
        str(tmp_path), use_cpu=True, max_length=None, chat_template_path=str(TEMPLATES / "qwen3.jinja")
    )
    made = SFTTrainer("tiny", args, train_dataset=[{"messages": said_text}])
    assert "<|im_start|>user\nIs 91 prime?<|im_end|>" in played(made.env, chat_of("qwen3")).text


def test_what_a_conversation_has_around_its_trained_turns_is_noted(tmp_path):
    messages = [said("Hello!"), user("Prime?"), said("No."), user("Thanks.")]
    read = PATHS["turns"](messages, {}, tmp_path, "qwen3")
    assert read.trained == "<think>\n\n</think>\n\nNo.<|im_end|>"
    assert OPENS_UNASKED in read.notes
    assert ENDS_UNANSWERED in read.notes


def test_a_template_that_writes_arguments_as_they_are_gets_text(tmp_path):
    """DeepSeek's joins them to other text."""
    messages = [user("Go?"), said("", tool_calls=[call("f", {"a": 1})]), answer("3"), said("3.")]
    read = PATHS["whole"](messages, {}, tmp_path, "deepseekv3")
    assert '{"a": 1}' in read.text
