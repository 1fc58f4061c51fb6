"""The versions of a model and of an adapter, in folders."""

import copy
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from truing.models.tiny import byte_tokenizer

MOVED, NEARLY, ADAPTED = 0.02, 1e-4, 0.02
"""How far a step moves a weight, of its deviation; one that bfloat16 loses; and the deviation of B."""

TARGETS = ("q_proj", "v_proj", "gate_proj", "up_proj", "down_proj")

Weights = dict[str, Tensor]


class Folders:
    """The base, the version before, the newest one, and adapters of the base."""

    def __init__(self, root: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.root, self._tokenizer = root, tokenizer
        before = moved(model, 1, MOVED)
        self.models = {"base": model, "before": before, "newest": moved(before, 2, MOVED)}
        self.models["nearly"] = moved(before, 3, NEARLY)
        for name, each in self.models.items():
            self.write(name, each)

    def path(self, name: str) -> str:
        """Return a version's folder."""
        return str(self.root / name)

    def write(self, name: str, model: PreTrainedModel) -> str:
        """Write a version; return its folder."""
        model.save_pretrained(self.root / name)
        self._tokenizer.save_pretrained(self.root / name)
        return self.path(name)

    def weights(self, name: str = "newest") -> Weights:
        """Return a version's weights by name, tied ones once."""
        tied = set(self.models[name].all_tied_weights_keys)
        state = self.models[name].state_dict()
        return {key: value.clone() for key, value in state.items() if key not in tied}

    def adapter(self, name: str, seed: int, alpha: int = 8, without: str = "") -> str:
        """Write an adapter, with B at random but zero in the layer ``without``; return its folder."""
        policy: Any = self.adapted(seed, alpha)
        for key, parameter in policy.named_parameters():
            if "lora_B" in key and without and without in key:
                parameter.data.zero_()
        policy.save_pretrained(str(self.root / name))
        return self.path(name)

    def adapted(self, seed: int, alpha: int = 8) -> Any:
        """Return the base with an adapter."""
        torch.manual_seed(0)  # A
        config = LoraConfig(target_modules=list(TARGETS), r=4, lora_alpha=alpha)
        policy: Any = get_peft_model(copy.deepcopy(self.models["base"]), config)
        policy.peft_config["default"].base_model_name_or_path = self.path("base")
        generator = torch.Generator().manual_seed(seed)
        for key, parameter in policy.named_parameters():
            if "lora_B" in key:
                parameter.data.copy_(ADAPTED * torch.randn(parameter.shape, generator=generator))
        return policy


def moved(model: PreTrainedModel, seed: int, by: float) -> PreTrainedModel:
    """Return a model whose weights a step moved, in a direction of its own."""
    changed, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for parameter in changed.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.add_(by * parameter.data.std().nan_to_num() * noise)
    return changed


def between(folders: Folders, share: float) -> Weights:
    """Return the weights at a share of the way from the base to the newest version."""
    base, newest = folders.weights("base"), folders.weights()
    return {name: base[name] + share * (weight - base[name]) for name, weight in newest.items()}


def rounded(folders: Folders, dtype: torch.dtype) -> Weights:
    """Return the newest weights as they come by way of a dtype."""
    return {name: each.to(dtype).float() for name, each in folders.weights().items()}


def random_qwen3() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a small random Qwen3 that reads bytes; its o_proj is square."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 259}
    config = Qwen3Config(max_position_embeddings=1024, eos_token_id=257, pad_token_id=258, **sizes)
    config.tie_word_embeddings = False
    model = Qwen3ForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(0, parameter.shape[1] ** -0.5)
    return model, byte_tokenizer()
