"""Special tokens that data may contain as tokens, and new ones whose embeddings nothing trains."""

import pytest
import torch
from transformers import AutoTokenizer

from truing.chat import make_chat
from truing.chat.render import encode_reply, render_prompt
from truing.errors import DataError, ModelError
from truing.models.builtin import ensure_built
from truing.models.new_tokens import untrained_rows
from truing.types.message import AssistantMessage
from truing.types.rollout import Task
from truing.types.token import Origin


@pytest.fixture
def tokenizer():
    own = AutoTokenizer.from_pretrained(ensure_built("tiny"))
    own.add_tokens(["<plan>", "</plan>"], special_tokens=True)
    return own


def chat_of(tokenizer, **options):
    return make_chat(tokenizer, [tokenizer.eos_token_id], **options)


ASKED = ({"role": "user", "content": "Use <plan>x</plan>."},)


@pytest.mark.parametrize("named", ["free", ["<plan>", "</plan>"]])
def test_a_named_token_is_encoded_as_the_tokenizer_encodes_it(tokenizer, named):
    chat = chat_of(tokenizer, content_tokens=named)
    plan, end = tokenizer.convert_tokens_to_ids(["<plan>", "</plan>"])
    prompt = render_prompt(chat, Task("t", "f", ASKED))
    ids = tokenizer.apply_chat_template([*ASKED], add_generation_prompt=True)["input_ids"]
    assert prompt.token_ids.tolist() == list(ids)
    assert {plan, end} <= set(ids)
    assert prompt.origin[prompt.token_ids == plan].tolist() == [Origin.PROMPT]
    reply = encode_reply(chat, ASKED, AssistantMessage("<plan>add</plan>2")).tolist()
    assert (reply[0], reply.count(end), reply[-1]) == (plan, 1, tokenizer.eos_token_id)


def test_by_default_it_is_refused_with_the_key_that_names_it(tokenizer):
    with pytest.raises(DataError, match=r"special token '<plan>'(.|\n)*chat\.content_tokens"):
        render_prompt(chat_of(tokenizer), Task("t", "f", ASKED))


def test_tokens_of_the_template_and_ends_of_turns_are_not_named(tokenizer):
    control = [*chat_of(tokenizer).control.ids]
    theirs = [token for token in control if "plan" not in token]
    assert theirs
    for token in [*theirs, "plain"]:
        with pytest.raises(ModelError, match=r"may not contain(.|\n)*<plan>, </plan>"):
            chat_of(tokenizer, content_tokens=[token])
        if token in theirs:
            task = Task("t", "f", ({"role": "user", "content": token},))
            with pytest.raises(DataError) as caught:
                render_prompt(chat_of(tokenizer, content_tokens="free"), task)
            assert "content_tokens" not in caught.value.remedy


def test_rows_at_the_mean_or_of_zeros_are_untrained():
    weight = torch.randn(300, 16, generator=torch.Generator().manual_seed(0))
    weight[298] = weight.mean(0) + 1e-4
    weight[299] = 0.0
    assert untrained_rows(weight, [0, 5, 298, 299, 400]) == [298, 299]
