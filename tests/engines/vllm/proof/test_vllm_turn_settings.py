"""Parameters of an engine's own are found from its log-probabilities."""

from dataclasses import replace

import pytest
import torch

from truing.engines.vllm.proof.turn_causes import TurnLogits, nearest, own_settings
from truing.types.sampling_params import SamplingParams

DECLARED = SamplingParams(temperature=0.9, max_new_tokens=4)

TOLERANCE = 1e-3


def turns(own, *, penalize_prompt=False, scale=4.0):
    """16 tokens that an engine sampled with parameters of its own, among the likeliest ids."""
    generator = torch.Generator().manual_seed(0)
    logits_KV = scale * torch.randn(16, 60, generator=generator)
    ids_K3 = logits_KV.topk(3).indices
    answer_KH, prompt_KH = ids_K3[:, 1:2], ids_K3[:, 2:3]
    times = torch.arange(16)[:, None] % 3  # that an id came before
    answer_KH = torch.where(torch.arange(2) < times, answer_KH, -1)
    context_KH = torch.cat([answer_KH, prompt_KH], dim=1)
    known = TurnLogits(logits_KV, ids_K3[:, 0], torch.zeros(16), answer_KH, context_KH)
    found_KV = known.processed(own, penalize_prompt=penalize_prompt)
    return replace(known, found_K=found_KV.gather(1, ids_K3[:, :1])[:, 0])


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("of temperature 0.63", {"temperature": 0.63}),
        ("of temperature 1.37", {"temperature": 1.37}),
        ("of presence penalty 0.45", {"presence_penalty": 0.45}),
        ("of frequency penalty 0.31", {"frequency_penalty": 0.31}),
        ("of repetition penalty 1.07, which counts the answer", {"repetition_penalty": 1.07}),
        ("without any parameter (raw log-probabilities)", {"temperature": 1.0}),
    ],
)
def test_the_value_of_a_parameter_is_found(words, own):
    found = turns(replace(DECLARED, **own))
    assert words in nearest(own_settings(found, DECLARED), TOLERANCE)


def test_a_penalty_that_counts_the_prompt_is_found():
    found = turns(replace(DECLARED, repetition_penalty=1.2), penalize_prompt=True)
    assert "repetition penalty 1.2, which counts the prompt" in nearest(
        own_settings(found, DECLARED), TOLERANCE
    )
    declared = replace(DECLARED, presence_penalty=0.5)
    found = turns(declared, penalize_prompt=True)
    assert nearest(own_settings(found, declared), TOLERANCE) == "their penalties count the prompt too"


def test_noise_is_no_parameter():
    found = turns(DECLARED)
    noisy = replace(found, found_K=found.found_K + 0.3 * torch.randn(16))
    assert nearest(own_settings(noisy, DECLARED), TOLERANCE) == ""
