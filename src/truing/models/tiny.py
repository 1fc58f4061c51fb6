"""`tiny`: a small random Llama that reads bytes. It trains in seconds on a CPU, for tests and probes."""

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from truing.models.save import save_model

SEED = 0
PARAMETERS = 136_320
HIDDEN = 80
LAYERS = 2
CONTEXT = 2048

BEGIN, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML without a default system message: a prompt holds its task's messages only."""


def build(out: Path, seed: int = SEED) -> None:
    """Write the tiny model and its tokenizer to the folder ``out``; equal seeds give equal weights."""
    save_model(tiny_model(seed), out)
    byte_tokenizer().save_pretrained(out)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose ids 0 to 255 are the bytes themselves, followed by three special tokens."""
    letters = bytes_to_unicode()
    backend = Tokenizer(BPE(vocab={letters[byte]: byte for byte in range(256)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in (BEGIN, END, PAD)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[BEGIN],
        model_max_length=CONTEXT,
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(seed: int = SEED) -> LlamaForCausalLM:
    """A random Llama of about 0.14 M parameters, in fp32; the global random state is unchanged."""
    end, pad = 257, 258
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        attn_implementation="sdpa",  # pyright: ignore[reportCallIssue] (no field: a keyword of its base)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=pad)
    return model
