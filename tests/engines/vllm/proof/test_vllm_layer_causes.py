"""The frequent ways in which layers may be wrong are named, and nothing else is given a name."""

import pytest
import torch

from truing.engines.vllm.proof.expected_layers import FORMATS
from truing.engines.vllm.proof.layer_causes import Known, WrongLayers
from truing.engines.vllm.proof.rounding import Rounding
from truing.engines.vllm.worker.truing_vllm_worker import probe_vector

EPS = torch.finfo(torch.float32).eps

NAMES = ("layers.0.k_proj", "layers.0.v_proj", "layers.1.k_proj")


def weights(seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(256, 256, generator=generator) for name in NAMES}


def responses(held):
    r = probe_vector(256, 7)
    return {name: (w.double() @ r.double(), w.double().abs().sum(1)) for name, w in held.items()}


PUBLISHED, BEFORE, FIRST = weights(0), weights(1), weights(2)

KNOWN = Known(
    "no known cause",
    earlier=[("the weights of version 4", responses(BEFORE)), ("the weights of version 3", responses(FIRST))],
    changed=lambda words: responses({name: FORMATS[words](w) for name, w in PUBLISHED.items()}),
)


def changed(name, change):
    return {**PUBLISHED, name: change(PUBLISHED[name])}


HELD = {
    "the engine computes zeros": changed(NAMES[0], torch.zeros_like),
    "they are the weights of version 4": BEFORE,
    "they are scaled by 1.5": {name: 1.5 * w for name, w in PUBLISHED.items()},
    "they are scaled by 64": {name: 64 * w for name, w in PUBLISHED.items()},
    **{f"they are {words}": {n: cast(w) for n, w in PUBLISHED.items()} for words, cast in FORMATS.items()},
}

UNKNOWN = {
    "noise": changed(NAMES[0], lambda w: w + 1e-3 * torch.randn(256, 256)),
    "the weights of another layer": changed(NAMES[0], lambda _: PUBLISHED[NAMES[1]]),
    "outputs in another order": changed(NAMES[2], lambda w: w.roll(128, 0)),
    "a mean with earlier ones": {name: 0.25 * w + 0.75 * BEFORE[name] for name, w in PUBLISHED.items()},
    "some outputs of earlier ones": changed(NAMES[0], lambda w: torch.cat([w[:20], BEFORE[NAMES[0]][20:]])),
    "two causes": {**PUBLISHED, NAMES[0]: BEFORE[NAMES[0]], NAMES[1]: 2 * PUBLISHED[NAMES[1]]},
    "NaN": changed(NAMES[0], lambda w: w * torch.nan),
    "infinite": changed(NAMES[0], lambda w: w * torch.inf),
}


def wrong_layers(held):
    found = {name: response for name, (response, _) in responses(held).items()}
    published = responses(PUBLISHED)
    wrong = {name: values for name, values in found.items() if not values.equal(published[name][0])}
    return WrongLayers(wrong, published, Rounding(EPS))


@pytest.mark.parametrize("cause", HELD)
def test_a_cause_that_gives_all_wrong_layers_is_named(cause):
    assert wrong_layers(HELD[cause]).cause(KNOWN) == cause


@pytest.mark.parametrize("held", UNKNOWN)
def test_what_no_cause_gives_in_all_wrong_layers_has_none(held):
    assert wrong_layers(UNKNOWN[held]).cause(KNOWN) == "no known cause"


def test_a_layer_of_another_length_has_no_known_cause():
    wrong = WrongLayers({NAMES[0]: torch.ones(5).double()}, responses(PUBLISHED), Rounding(EPS))
    assert wrong.cause(KNOWN) == "no known cause"


def test_one_output_is_not_taken_for_a_scaled_layer():
    one = {"gate": (torch.ones(1).double(), torch.ones(1).double())}
    assert WrongLayers({"gate": torch.full((1,), 0.7).double()}, one, Rounding(EPS)).cause(KNOWN) == (
        "no known cause"
    )
