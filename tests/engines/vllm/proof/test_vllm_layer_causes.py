"""Each way in which a layer may be wrong is named, and noise is not given a name."""

import pytest
import torch

from truing.engines.vllm.proof.changed_weights import CHANGES
from truing.engines.vllm.proof.layer_causes import Known, cause_of
from truing.engines.vllm.proof.rounding import Rounding
from truing.engines.vllm.proof.wrong_layers import WrongLayers
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
MERGED = {name: w / 10 for name, w in weights(3).items()}

KNOWN = Known(
    "no known cause",
    earlier=[("the weights of version 4", responses(BEFORE)), ("the weights of version 3", responses(FIRST))],
    added=[("the adapter", responses(MERGED))],
    changed=lambda words: responses({name: CHANGES[words](w) for name, w in PUBLISHED.items()}),
)


def changed(name, change):
    return {**PUBLISHED, name: change(PUBLISHED[name])}


def rows_of_before(w):
    return torch.cat([w[:20], BEFORE["layers.0.k_proj"][20:]])


HELD = {
    "the engine holds zeros": changed(NAMES[0], torch.zeros_like),
    "they are the weights of version 4": BEFORE,
    "they are scaled by 1.5": {name: 1.5 * w for name, w in PUBLISHED.items()},
    "they are scaled by 64": {name: 64 * w for name, w in PUBLISHED.items()},
    "layers.0.k_proj has the weights of layers.0.v_proj": {
        **PUBLISHED,
        NAMES[0]: PUBLISHED[NAMES[1]],
        NAMES[1]: PUBLISHED[NAMES[0]],
    },
    "their outputs are in another order": changed(NAMES[2], lambda w: w.roll(128, 0)),
    "they are 0.25 times the published ones plus 0.75 times the weights of version 4": {
        name: 0.25 * w + 0.75 * BEFORE[name] for name, w in PUBLISHED.items()
    },
    "they are 1 times the published ones plus 2 times the adapter": {
        name: w + 2 * MERGED[name] for name, w in PUBLISHED.items()
    },
    "they are a sum of the published ones and some of": {
        name: w + BEFORE[name] + FIRST[name] for name, w in PUBLISHED.items()
    },
    "only outputs 20 to 255 of the 256 of layers.0.k_proj differ; they are the weights of version 4": changed(
        NAMES[0], rows_of_before
    ),
    "only outputs 3 to 3 of the 256 of layers.0.v_proj differ; the engine holds zeros": changed(
        NAMES[1], lambda w: w.index_fill(0, torch.tensor([3]), 0.0)
    ),
    **{f"they are {words}": {n: cast(w) for n, w in PUBLISHED.items()} for words, cast in CHANGES.items()},
    "no known cause": changed(NAMES[0], lambda w: w + 1e-3 * torch.randn(256, 256)),
}


def wrong_layers(held):
    found = {name: response for name, (response, _) in responses(held).items()}
    published = responses(PUBLISHED)
    wrong = {name: values for name, values in found.items() if not values.equal(published[name][0])}
    return WrongLayers(wrong, published, Rounding(EPS))


@pytest.mark.parametrize("cause", HELD)
def test_a_cause_that_gives_all_wrong_layers_is_named(cause):
    assert cause in cause_of(wrong_layers(HELD[cause]), KNOWN)


def test_a_cause_of_one_layer_alone_is_not_that_of_both():
    held = {**PUBLISHED, NAMES[0]: BEFORE[NAMES[0]], NAMES[1]: 2 * PUBLISHED[NAMES[1]]}
    assert cause_of(wrong_layers(held), KNOWN) == "no known cause"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_known_cause(value):
    assert cause_of(wrong_layers(changed(NAMES[0], lambda w: w * value)), KNOWN) == "no known cause"


def test_a_layer_of_another_length_has_no_known_cause():
    wrong = WrongLayers({NAMES[0]: torch.ones(5).double()}, responses(PUBLISHED), Rounding(EPS))
    assert cause_of(wrong, KNOWN) == "no known cause"
