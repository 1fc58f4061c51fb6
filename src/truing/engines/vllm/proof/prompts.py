"""What a server is asked for in a proof besides its layers: a row to score, and prompts to sample after."""

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.models.forward.hidden_states import longest_supported
from truing.models.forward.score import causal_model

LENGTH = 40
"""Tokens of the row that is scored."""

PROMPTS, NEW_TOKENS = 3, 4
"""Turns that are sampled, and tokens of each; each token costs a step of the engine."""

CACHED_LENGTH = 136
"""Tokens of a prompt that fills a block of vLLM's prefix cache: 128 tokens on a CPU, 16 on CUDA."""

LONG = {"cpu": 512, "cuda": 4096}
"""Most tokens of a prompt that shows cut prompts, sliding windows and scaled positions, by device."""

PART = 4
"""The beginning of a prompt is one part of this many."""


def canary_rows(policy: nn.Module) -> list[Tensor]:
    """Return the ids of the rows that the engine scores: [LENGTH] each."""
    return [_ids(policy, LENGTH, 0)]


def canary_prompts(policy: nn.Module) -> list[Tensor]:
    """Return the prompts of the turns that the engine samples.

    Without an adapter one fills a block of the prefix cache, which may hold keys and values of other weights.
    An adapter has a name of its own at each publication, and keys and values are cached by that name.
    """
    first = 8 if isinstance(policy, PeftModel) else CACHED_LENGTH
    return [_ids(policy, length, 1 + i) for i, length in enumerate([first, *range(9, 8 + PROMPTS)])]


def long_prompt(policy: nn.Module, context_length: int) -> Tensor:
    """Return the ids of a long prompt within the context, after which a server that has started samples."""
    causal = causal_model(policy)
    longest = min(
        LONG[causal.device.type], context_length - NEW_TOKENS, longest_supported(causal) - NEW_TOKENS
    )
    return _ids(policy, int(longest), PROMPTS + 1)


def with_other_beginning(prompt: Tensor) -> Tensor:
    """Return a prompt whose first part has its ids in the opposite order."""
    part = len(prompt) // PART
    return torch.cat([prompt[:part].flip(0), prompt[part:]])


def vocabulary_of(policy: nn.Module) -> int:
    """Return the number of ids of a model."""
    return causal_model(policy).config.get_text_config().vocab_size


def _ids(policy: nn.Module, length: int, i: int) -> Tensor:
    return (torch.arange(length) * (2 * i + 3) + 17 * i + 5) % vocabulary_of(policy)
