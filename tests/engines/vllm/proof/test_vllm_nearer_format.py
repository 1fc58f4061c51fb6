"""In bfloat16 layers with fewer bits are told from rounding over all their outputs."""

import pytest
import torch

from truing.engines.vllm.proof.expected_layers import FORMATS
from truing.engines.vllm.proof.rounding import nearer_format

EPS = torch.finfo(torch.bfloat16).eps
INT8 = "quantized to int8, with a scale for each row"


def responses(weights):
    """W r and Σ|W| of each layer, with ±1 in r."""
    r = (torch.arange(64) % 3 == 0).double() * 2 - 1
    return {name: (w.double() @ r, w.double().abs().sum(1)) for name, w in weights.items()}


def layers(outputs=96):
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(outputs, 64, generator=generator) for _ in range(3))
    return {name: each.bfloat16().float() for name, each in zip(("q", "k", "v"), drawn, strict=True)}


def found(weights, noise=0.0):
    """An engine's answers: weights and outputs in bfloat16, and further noise relative to an output."""
    generator = torch.Generator().manual_seed(1)
    answers = responses({name: w.bfloat16() for name, w in weights.items()})
    return {
        name: (each * (1 + noise * torch.randn(len(each), generator=generator))).bfloat16().double()
        for name, (each, _) in answers.items()
    }


def nearer(weights, engine, **options):
    published = responses(weights)
    return nearer_format(
        found(engine, **options),
        published,
        EPS,
        lambda words: responses({name: FORMATS[words](w) for name, w in weights.items()}),
    )


def test_layers_in_int8_are_named():
    weights = layers()
    quantized = {name: FORMATS[INT8](w) if name != "v" else w for name, w in weights.items()}
    assert nearer(weights, quantized) == (INT8, ["q", "k"])


@pytest.mark.parametrize("noise", [0.0, 2e-3, 2e-2])
def test_a_right_engine_is_nearer_to_no_format_however_it_rounds(noise):
    weights = layers()
    assert nearer(weights, weights, noise=noise) == ("", [])


def test_few_outputs_tell_nothing():
    weights = layers(outputs=8)
    assert nearer(weights, {name: FORMATS[INT8](w) for name, w in weights.items()}) == ("", [])


def test_formats_are_not_computed_if_outputs_are_rounded_once():
    weights = layers()
    assert nearer_format(found(weights), responses(weights), EPS, lambda _: pytest.fail("computed")) == (
        "",
        [],
    )
