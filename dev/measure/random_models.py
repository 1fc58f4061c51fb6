"""Models with random weights in the shape of real ones: speed does not depend on the weights.

They read bytes, as ``tiny`` does, so nothing is downloaded.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, Qwen2Config, Qwen3Config

from truing.models import builtin
from truing.models.load import available_device
from truing.models.resolve import resolve_model
from truing.models.save import save_model

TOKENIZER = "smollm2-135m"
QWEN3: dict[str, Any] = {
    "vocab_size": 151_936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}

SHAPES: dict[str, PreTrainedConfig] = {
    "qwen3-0.6b": Qwen3Config(
        **QWEN3, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, intermediate_size=3072
    ),
    "qwen3-4b": Qwen3Config(
        **QWEN3, hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, intermediate_size=9728
    ),
    "qwen2.5-7b": Qwen2Config(
        vocab_size=152_064,
        hidden_size=3584,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        intermediate_size=18_944,
        max_position_embeddings=32_768,
    ),
    "toy": Qwen3Config(
        vocab_size=300,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=96,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    ),
}
"""The published sizes, as at https://huggingface.co/Qwen/Qwen3-0.6B; ``toy`` is for tests."""


def model_folder(model: str) -> Path:
    """Return the folder of a case's model; one of SHAPES is written once, to the user's cache."""
    if model not in SHAPES:
        return resolve_model(model)
    folder = builtin.cache_dir() / "bench" / model
    if not folder.is_dir():
        builtin.write_folder_atomically(
            folder, lambda path: save_random_model(SHAPES[model], path, tokenizer="tiny")
        )
    return folder


def save_random_model(config: PreTrainedConfig, folder: Path, tokenizer: str = TOKENIZER) -> None:
    """Write a model with random weights, in bfloat16, and the tokenizer of a built-in one."""
    torch.manual_seed(0)
    with torch.device(available_device("auto")):  # billions of random numbers take minutes on a CPU
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, trust_remote_code=False)
    save_model(model, folder)
    AutoTokenizer.from_pretrained(resolve_model(tokenizer), trust_remote_code=False).save_pretrained(folder)
