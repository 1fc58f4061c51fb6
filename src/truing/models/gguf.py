"""Conversion of GGUF files, llama.cpp's quantized format, to a transformers folder in fp32.

All other code sees only the folder, so a GGUF model is trained, saved and exported like any other.
"""

import json
from pathlib import Path

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from truing.errors import ModelError
from truing.models.progress_bars import no_progress_bars
from truing.models.save import save_model
from truing.utils.memory import is_out_of_memory

SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r"})
"""``tokenizer.ggml.pre`` of vocabularies that split every digit, which transformers does not know."""

PLAIN_BYTE_LEVEL = frozenset({"gpt-2", "default"})
"""``tokenizer.ggml.pre`` of vocabularies that split as GPT-2 does, the fallback of transformers."""


def convert(source: Path, out: Path) -> None:
    """Write the model, tokenizer and chat template of a GGUF file to the folder ``out``.

    Weights are dequantized to float32: the values llama.cpp computes with, up to rounding.
    """
    try:
        with no_progress_bars():
            quantized = AutoModelForCausalLM.from_pretrained(
                source.parent, gguf_file=source.name, dtype=torch.float32, trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(
                source.parent, gguf_file=source.name, trust_remote_code=False
            )
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            "this GGUF file cannot be read",
            got=f"{source}: {type(error).__name__}: {error}",
            expected="a decoder-only model of an architecture that transformers converts",
            remedy="give the model's original folder or hub id instead",
        ) from error
    split_as_declared(tokenizer, source)
    tokenizer.model_max_length = quantized.config.max_position_embeddings
    save_model(as_ordinary_model(quantized), out)
    tokenizer.save_pretrained(out)
    drop_invented_tokens(out / "tokenizer.json", quantized.config.vocab_size)


def as_ordinary_model(quantized: PreTrainedModel) -> PreTrainedModel:
    """Return the same weights in a new model.

    transformers marks a model from a GGUF file as quantized for good, and refuses to save or train it.
    """
    config = type(quantized.config).from_dict(quantized.config.to_dict() | {"quantization_config": None})
    delattr(config, "quantization_config")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    return model


def split_as_declared(tokenizer: PreTrainedTokenizerFast, source: Path) -> None:
    """Make ``tokenizer`` pre-tokenize text as the GGUF file declares, or raise.

    For an unknown declaration transformers silently pre-tokenizes as GPT-2 does. The ids then differ from
    those of training (in SmolLM2, for two spaces before a digit).
    """
    fields = GGUFReader(source).fields
    if fields["tokenizer.ggml.model"].contents() != "gpt2" or "tokenizer.ggml.pre" not in fields:
        return
    declared = fields["tokenizer.ggml.pre"].contents()
    backend = tokenizer.backend_tokenizer
    if declared in SINGLE_DIGITS:
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), byte_level]
        )
    elif isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel) and declared not in PLAIN_BYTE_LEVEL:
        raise ModelError(
            "this GGUF file declares an unknown pre-tokenizer, so its ids would be wrong",
            got=f"tokenizer.ggml.pre = {declared!r} in {source}",
            remedy="give the model's original folder or hub id; its tokenizer.json defines the pre-tokenizer",
        )


def drop_invented_tokens(file: Path, vocab_size: int) -> None:
    """Remove the ``<|endoftext|>`` that transformers adds after a vocabulary without one."""
    table = json.loads(file.read_text(encoding="utf-8"))
    table["added_tokens"] = [token for token in table["added_tokens"] if token["id"] < vocab_size]
    file.write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
