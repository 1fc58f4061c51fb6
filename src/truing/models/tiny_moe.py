"""`tiny-moe`: a small random mixture of experts of Qwen3's kind that reads bytes, for tests and probes."""

from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

from truing.models.save import save_model
from truing.models.tiny import CONTEXT, byte_tokenizer

SEED = 0
PARAMETERS = 280_384
LAYERS, EXPERTS, CHOSEN = 2, 8, 2

GAIN = 5.0
"""Weights of routers and experts are this much larger than usual, so that another expert shows."""


def build(out: Path, seed: int = SEED) -> None:
    """Write the model and its tokenizer to the folder ``out``; equal seeds give equal weights."""
    save_model(tiny_moe_model(seed), out)
    byte_tokenizer().save_pretrained(out)


def tiny_moe_model(seed: int = SEED) -> Qwen3MoeForCausalLM:
    """A random mixture in fp32; each token takes two of eight experts. The random state is unchanged."""
    end, pad = 257, 258
    config = Qwen3MoeConfig(
        vocab_size=259,
        hidden_size=64,
        intermediate_size=96,
        moe_intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # pyright: ignore[reportCallIssue] (no field: a keyword of its base)
        num_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        norm_topk_prob=True,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        attn_implementation="sdpa",  # pyright: ignore[reportCallIssue] (no field: a keyword of its base)
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen3MoeForCausalLM(config)
        for name, weight in model.named_parameters():
            if ".mlp." in name:
                weight *= GAIN
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=pad)
    return model
