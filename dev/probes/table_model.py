"""`table`: a language model whose policy is a table, so that its optimum has a closed form.

A Llama of one layer that adds nothing: its embedding is the identity, so the hidden state is the last
token, one-hot, and the output head is the table. Row v, column s is the logit of token v after token s.
"""

from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from truing.models.save import save_model
from truing.models.tiny import byte_tokenizer

VOCABULARY, END_ID = 259, 257
LETTERS = tuple(b"abcdefgh")
"""The model's initial answers, each as likely as the end of its turn: nine tokens."""

NEVER_LOGIT = -30.0
"""Logit of impossible tokens."""

TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
)
"""No other text: a prompt of one letter is one token, the state of the first answer token."""


def build(out: Path) -> None:
    """Write the model and its tokenizer to a folder."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    save_model(_table(), out)
    tokenizer.save_pretrained(out)


@torch.no_grad()
def _table() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=VOCABULARY,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END_ID,
        pad_token_id=258,
        attn_implementation="sdpa",  # pyright: ignore[reportCallIssue] (no field: a keyword of its base)
    )
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config)
    layer = model.model.layers[0]
    assert isinstance(layer, LlamaDecoderLayer)
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.zero_()
    root = VOCABULARY**0.5
    model.model.embed_tokens.weight.copy_(torch.eye(VOCABULARY) * root)
    model.model.norm.weight.fill_(1 / root)  # the norm makes the identity of it again
    model.lm_head.weight.fill_(NEVER_LOGIT)
    model.lm_head.weight[[*LETTERS, END_ID]] = 0.0
    model.generation_config = GenerationConfig(eos_token_id=END_ID, pad_token_id=258)
    return model
