"""The proof of a sampler before it samples: it records the log-probabilities that training computes."""

import torch
from torch import nn

from truing.engines.base import Request
from truing.engines.local.engine import LocalEngine
from truing.models.forward.hidden_states import longest_supported
from truing.models.forward.score import causal_model
from truing.models.forward_proof import (
    answer_logprobs,
    architecture_errors,
    example_ids,
    proof_sample,
    refuse_difference,
    rounding_tolerance,
)
from truing.types.sampling_params import SamplingParams

PROMPTS, DRAWN = (1, 2, 3, 8, 9, 12, 14, 21), 12
"""Tokens of the prompts to sample for, and of each answer: 0, 1 and up to 7 pads."""


@torch.no_grad()
def prove_sampler(policy: nn.Module, sampler: LocalEngine) -> None:
    """Raise unless the sampler records the log-probabilities that ``score`` computes."""
    causal = causal_model(policy)
    sampling_params = SamplingParams(max_new_tokens=DRAWN)
    max_prompt_length = min(sampler.context_length, longest_supported(causal)) - DRAWN
    prompts = [
        example_ids(causal, length, 1 + length // 10)
        for length in PROMPTS
        if length <= max(max_prompt_length, 1)
    ]
    with architecture_errors(causal, "Truing cannot sample from this model"):
        completions = sampler.generate(
            [Request(ids, ("proof", i)) for i, ids in enumerate(prompts)], sampling_params
        )
    samples = [
        proof_sample(str(i), ids, completion.token_ids)
        for i, (ids, completion) in enumerate(zip(prompts, completions, strict=True))
    ]
    trainer_logprobs = answer_logprobs(policy, samples)
    differences = [
        (trainer_logprob - completion.logprob).abs().max()
        for trainer_logprob, completion in zip(trainer_logprobs, completions, strict=True)
    ]
    tolerance = rounding_tolerance(policy, samples)
    lengths = [
        len(ids) for ids, difference in zip(prompts, differences, strict=True) if not difference <= tolerance
    ]
    refuse_difference(
        causal,
        torch.stack(differences).max(),
        tolerance,
        "the sampler and the trainer compute different log-probabilities",
        f"decoding from the cache differs from a full forward, for prompts of {lengths} tokens",
    )
