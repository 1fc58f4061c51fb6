"""What ends a turn, for the shapes in which models declare it."""

import pytest
from tokenizers import AddedToken

from truing.errors import ModelError
from truing.models.stop_ids import stop_ids, turn_end_id
from truing.models.tiny import byte_tokenizer

END, PAD, BEGIN = 257, 258, 256


def tokenizer_with(template, eos="<|im_end|>"):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    tokenizer.eos_token = eos
    return tokenizer


LAST = "{{ messages[-1]['content'] }}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (LAST + "<|im_end|>\n", END),
        (LAST + "<|pad|>", PAD),
        ("<|im_start|>" + LAST, None),  # nothing follows
        (LAST + "\n<|im_end|>", None),  # a newline follows: no single token ends the turn
        (LAST + "x", None),
    ],
)
def test_turn_end_is_the_special_token_right_after_the_answer(template, expected):
    assert turn_end_id(tokenizer_with(template)) == expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("<turn|>\n", "<turn|>"),  # added, and not declared as special
        ("<turn|><|im_end|>", None),  # then the special one ends the text that has it
        ("\n\n", None),  # Gemma's runs of white space are added tokens too
    ],
)
def test_an_added_token_that_is_not_declared_as_special_may_end_a_turn(after, expected):
    tokenizer = tokenizer_with(LAST + after)
    tokenizer.add_tokens([AddedToken(each, special=False, normalized=False) for each in ("<turn|>", "\n\n")])
    assert turn_end_id(tokenizer) == (expected and tokenizer.convert_tokens_to_ids(expected))


@pytest.mark.parametrize(
    ("eos", "expected"),
    [(None, (END,)), (END, (END,)), ([BEGIN, END], (END, BEGIN)), ([PAD, PAD], (END, PAD))],
)
def test_declared_ids_are_an_int_a_list_or_absent(eos, expected):
    assert stop_ids(byte_tokenizer(), eos) == expected


def test_the_template_comes_first_even_where_eos_differs():
    # Llama-3-like: the turn ends with another token than the text does.
    assert stop_ids(tokenizer_with(LAST + "<|pad|>"), [END]) == (PAD, END)


def test_no_stop_at_all_is_an_error():
    with pytest.raises(ModelError, match="has no stop token"):
        stop_ids(tokenizer_with(LAST, eos=None), None)


def test_a_template_without_the_answer_is_an_error():
    with pytest.raises(ModelError, match="drops the assistant's message"):
        turn_end_id(tokenizer_with("{{ messages[0]['content'] }}"))


def test_a_template_that_refuses_is_an_error():
    with pytest.raises(ModelError, match="rejects a question and its answer"):
        stop_ids(tokenizer_with("{{ raise_exception('no') }}"), END)
