"""Small models in three shapes, and the forms of their forward that must agree."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from truing.models.forward.autocast import autocast
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.forward_proof import proof_sample
from truing.types.sample import Sample

VOCABULARY = 1024

Logprobs = Callable[[PreTrainedModel, list[Sample]], Tensor]


def configs(toy: bool) -> dict[str, PreTrainedConfig]:
    """Return small configs in three shapes; ``gemma3-window`` attends to fewer tokens than a row has."""
    width, layers = (64, 2) if toy else (512, 4)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": width // 8,
        "max_position_embeddings": 1024,
    }
    return {
        "llama": LlamaConfig(**sizes),
        "qwen3": Qwen3Config(**sizes),
        "gemma3": Gemma3TextConfig(**sizes, sliding_window=1024),
        "gemma3-window": Gemma3TextConfig(**sizes, sliding_window=16),
    }


def random_model(config: PreTrainedConfig, device: str, precision: str) -> PreTrainedModel:
    """Return a model with random weights in a dtype."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, precision)).eval().to(device)


def rows(prompt: int, answers: int, length: int) -> list[Sample]:
    """Return samples that share a prompt, and half of each answer with its neighbour."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> Tensor:
        return torch.randint(2, VOCABULARY, (count,), generator=generator)

    shared, halves = draw(prompt), [draw(length // 2) for _ in range(answers)]
    return [
        proof_sample(str(i), shared, torch.cat([halves[i // 2], draw(length // 2)])) for i in range(answers)
    ]


def plain_logprobs(model: PreTrainedModel, samples: list[Sample]) -> Tensor:
    """Return the answers' log-probabilities by transformers' own forward of each row: [N]."""
    found = []
    for sample in samples:
        with autocast(model):
            logits_TV = model(input_ids=sample.token_ids[None].to(model.device)).logits[0]
        answer = sample.token_ids[sample.prompt_length :, None].to(model.device)
        logprob_TV = logits_TV[sample.prompt_length - 1 : -1].float().log_softmax(-1)
        found.append(logprob_TV.gather(1, answer)[:, 0])
    return torch.cat(found)


def trainer_logprobs(model: PreTrainedModel, samples: list[Sample]) -> Tensor:
    """Return the answers' log-probabilities by the trainer's forward: [N]."""
    batch = collate(samples)
    return score(model, batch, batch.policy_mask).logprob[batch.policy_mask]


def gradient(model: PreTrainedModel, logprobs: Logprobs, samples: list[Sample]) -> Tensor:
    """Return the gradient of a weighted sum of log-probabilities by all weights: [P] float64 on the CPU."""
    model.zero_grad()
    logprob_N = logprobs(model, samples)
    (logprob_N * torch.linspace(-1, 1, len(logprob_N), device=logprob_N.device)).sum().backward()
    weights = (weight.grad for weight in model.parameters())
    return torch.cat([grad.flatten().double().cpu() for grad in weights if grad is not None])


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute weights in float32 in float32 within the block: no autocast, no TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with patch("truing.models.forward.autocast.computing_dtype", lambda model: None):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
