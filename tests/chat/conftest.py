"""Real chat templates, and a tokenizer to put them on."""

import copy

import pytest
from episodes import CONTROL, stop_ids
from folders import WRITTEN
from published_templates import template_of
from transformers import AutoTokenizer

from truing.chat import make_chat


@pytest.fixture
def minimind():
    """A small tokenizer that has the control tokens of every family."""
    tokenizer = AutoTokenizer.from_pretrained(WRITTEN / "tokenizers" / "minimind")
    tokenizer.add_special_tokens({"additional_special_tokens": list(CONTROL)})
    tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
    return tokenizer


@pytest.fixture
def speak(minimind):
    """``speak(template, tokenizer)``: how a model with that template is spoken to."""

    def made(name, tokenizer=minimind, **options):
        own = copy.copy(tokenizer)
        own.chat_template = template_of(name)
        return make_chat(own, stop_ids(own), **options)

    return made
