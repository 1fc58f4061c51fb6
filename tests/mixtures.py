"""A small mixture of experts that reads bytes, for tests of routes."""

from pathlib import Path

import torch
from architectures import tiny_model
from transformers import Qwen3MoeConfig

from truing.models.tiny import byte_tokenizer

LAYERS, EXPERTS, CHOSEN = 2, 8, 2


def write_mixture(folder: Path) -> str:
    """Write a random Qwen3 mixture and its tokenizer; return the folder's name."""
    config = Qwen3MoeConfig(
        vocab_size=259,
        hidden_size=64,
        intermediate_size=96,
        moe_intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        max_position_embeddings=1024,
        eos_token_id=257,
        pad_token_id=258,
    )
    model = tiny_model(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "mlp" in name:
                weight *= 5  # random weights are so small that no expert would count
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)
