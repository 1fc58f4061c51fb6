"""The model and tokenizer of a TRL script as a folder or name that a recipe can give."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from truing.chat.apply_template import unread_variables
from truing.errors import ModelError
from truing.models.load import load_tokenizer
from truing.models.resolve import resolve_model
from truing.utils.file_mode import share_weights

LOG = logging.getLogger(__name__)

RAW_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)
"""Renders a prompt of text as it is, and behind it a completion with its end."""

RAW_BEGINNING = "{% if not messages[0]['content'].startswith(bos_token) %}{{ bos_token }}{% endif %}"
"""Renders the beginning of a text, which a text that a chat template has written may have already."""


def model_name(model: Any) -> str:
    """Return the name of a model, for the default of ``output_dir``."""
    name = model if isinstance(model, str) else getattr(model.config, "_name_or_path", "") or "model"
    return str(name).rstrip("/").split("/")[-1]


def source_of(model: str | PreTrainedModel) -> str:
    """Return the name or folder of a model, or that which an object was loaded from."""
    return model if isinstance(model, str) else model.config._name_or_path


def model_type(model: str | PreTrainedModel) -> str:
    """Return the type of a model, as its config names it."""
    if not isinstance(model, str):
        return model.config.model_type
    return AutoConfig.from_pretrained(resolve_model(model), trust_remote_code=False).model_type


def check_model(model: Any) -> None:
    """Raise unless a model is a name or an object that can be saved."""
    if isinstance(model, PeftModel):
        raise ModelError(
            "a PeftModel cannot be passed to truing.trl",
            got=type(model).__name__,
            expected="a name, a folder or a model without adapter",
            remedy="pass the base model, and peft_config for a new adapter; to go on with a saved one,"
            " set lora.adapter in a recipe",
        )
    if not isinstance(model, str | PreTrainedModel):
        raise ModelError(
            "this model cannot be trained",
            got=type(model).__name__,
            expected="a name, a folder or a transformers model",
        )


def model_folder(model: str | PreTrainedModel, tokenizer: Any, folder: Path) -> str:
    """Return the name or folder of a model; an object is saved to ``folder`` with its tokenizer."""
    if isinstance(model, str):
        return model
    model.save_pretrained(folder)
    share_weights(*folder.glob("*.safetensors"))
    if tokenizer is None:
        tokenizer = load_tokenizer(resolve_model(source_of(model)))
    tokenizer.save_pretrained(folder)
    return str(folder)


def tokenizer_of(name: str, revision: str | None, given: Any) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model, checked to be the one that was given, but for its chat template."""
    from transformers import AutoTokenizer

    folder = resolve_model(name, revision)
    try:
        own = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise ModelError("the model has no readable tokenizer", got=f"{folder}: {error}") from error
    if given is None:
        return own
    if not isinstance(given, PreTrainedTokenizerBase):
        raise ModelError(
            "processing_class is not a tokenizer",
            got=type(given).__name__,
            expected="a tokenizer: Truing trains on text",
        )
    if given.get_vocab() != own.get_vocab() or given.eos_token_id != own.eos_token_id:
        raise ModelError(
            "processing_class has other tokens than the model's own tokenizer",
            got=f"{len(given)} tokens, eos {given.eos_token!r}; the model has {len(own)}, {own.eos_token!r}",
            remedy="pass the model as an object: it is saved with processing_class",
        )
    return given


def new_tokens(model: str | PreTrainedModel, tokenizer: Any) -> list[str]:
    """Return the tokens of a model object that its original does not have; none of a name."""
    if isinstance(model, str):
        return []
    try:
        original = load_tokenizer(resolve_model(source_of(model))).get_vocab()
    except ModelError:  # a model made in the script has no original
        return []
    return [token for token in tokenizer.get_added_vocab() if token not in original]


def read_variables(
    tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, Any], template: str | None
) -> dict[str, Any]:
    """Return the variables that a chat template reads; the others have no effect in TRL either."""
    unread = unread_variables(tokenizer, variables, template)
    if unread:
        LOG.warning("chat_template_kwargs: the template does not read %s", ", ".join(unread))
    return {name: value for name, value in variables.items() if name not in unread}


def raw_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the template of prompts of text, with the beginning that the tokenizer adds to a text."""
    ids = tokenizer("a")["input_ids"]
    begins = tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id]
    return (RAW_BEGINNING if begins else "") + RAW_TEMPLATE
