"""Plain text becomes a context and a completion whose tokens are those of the text."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from truing.errors import DataError
from truing.models.tiny import byte_tokenizer
from truing.trl.demonstrations import check_rows, is_plain_text, most_turns
from truing.trl.text_rows import text_demonstrations

VOCAB = {"a": 0, "b": 1, "ab": 2, "ba": 3, "c": 4, "</s>": 5, "<s>": 6}


def merging_tokenizer(**special):
    """A tokenizer that merges b and a before a and b, so "aba" is a, ba."""
    model = Tokenizer(models.BPE(VOCAB, merges=[("b", "a"), ("a", "b")]))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="</s>", **special)


@pytest.mark.parametrize(
    ("text", "context"),
    [("aba", "a"), ("abc", "ab"), ("a", "a"), ("abc</s>", "ab"), ("", "")],
)
def test_the_context_is_the_first_token(text, context):
    (row,) = text_demonstrations([{"text": text}], "text", merging_tokenizer())
    assert row == {"prompt": context, "completion": text.removesuffix("</s>")[len(context) :]}


def test_the_parts_have_the_tokens_of_the_whole():
    tokenizer = byte_tokenizer()
    text = "ää: one, two"  # a letter of two tokens
    (row,) = text_demonstrations([{"story": text}], "story", tokenizer)
    before, after = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in row.values())
    assert before + after == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert row["prompt"] == "ä"


def test_prompts_and_messages_come_before_text():
    assert is_plain_text([{"text": "a"}], "text")
    assert not is_plain_text([{"text": "a", "prompt": "b", "completion": "c"}], "text")
    assert not is_plain_text([{"story": "a"}], "text")
    with pytest.raises(DataError, match="rename_column"):
        is_plain_text([{"text": [{"role": "user", "content": "a"}]}], "text")


@pytest.mark.parametrize(
    ("row", "remedy"),
    [
        ({"conversations": [{"from": "human", "value": "a"}]}, "maybe_convert_to_chatml"),
        ({"instruction": "a", "output": "b"}, 'row."output".'),
        ({"story": "a"}, "dataset_text_field"),
    ],
)
def test_other_rows_are_refused_with_the_way_to_make_demonstrations(row, remedy):
    with pytest.raises(DataError, match=remedy):
        check_rows([row], assistant_only_loss=False, completion_only_loss=None)


def test_turns_are_counted():
    said = [{"role": role, "content": "a"} for role in ("user", "assistant", "user", "assistant")]
    assert most_turns([{"text": "a"}]) == 1
    assert most_turns([{"messages": said[:1]}]) == 1  # refused later, as no demonstration
    assert most_turns([{"messages": said[:2]}, {"messages": said}]) == 2
    assert most_turns([{"prompt": said[:1], "completion": said[1:]}]) == 2
