"""What rounding explains of a layer's outputs, and what it does not, in each dtype of an engine."""

import pytest
import torch

from truing.engines.vllm.proof.compare_layers import DELTA_BOUND
from truing.engines.vllm.proof.layer_causes import Known, WrongLayers
from truing.engines.vllm.proof.rounding import Rounding
from truing.engines.vllm.worker.truing_vllm_worker import probe_vector

R = probe_vector(512, 3)


def weight(seed=0):
    return torch.randn(512, 512, generator=torch.Generator().manual_seed(seed))


def response(w):
    return w.double() @ R.double(), w.double().abs().sum(1)


def published(dtype):
    return response(weight().to(dtype))


def computed(w, dtype):
    """As a kernel does that sums in float32 and rounds once."""
    return (w.to(dtype).float() @ R).to(dtype).double()


def int4(w):
    """Quantized with a scale for 32 inputs of an output."""
    groups = w.unflatten(-1, (-1, 32))
    scale = groups.abs().amax(-1, keepdim=True) / 7
    return ((groups / scale).round() * scale).flatten(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_rounding_is_a_small_part_of_what_is_allowed(dtype, scale):
    w = weight() * scale
    rounding = Rounding.of_products(dtype)
    assert rounding.error(computed(w, dtype), *response(w.to(dtype))) < 0.5 * rounding.bound


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_weight_beside_an_output_that_cancels_may_be_rounded(dtype):
    """Its products are summed in float32, and 0 is not exact there."""
    w = weight()
    w[0] = torch.cat([w[0, :256], -(w[0, :256] * R[:256] * R[256:])])
    assert Rounding.of_products(dtype).explains(computed(w, dtype), *response(w.to(dtype)))


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w + 0.01 * weight(1),  # in all outputs
        int4,
        lambda w: w.index_put((torch.tensor(7), torch.tensor(0)), w[7, 0] + 12),
        lambda w: w.index_fill(0, torch.tensor([9]), 0.0),
        lambda w: w * torch.nan,
    ],
    ids=["noise of 1 %", "int4", "one element", "one output", "NaN"],
)
def test_changed_weights_are_beyond_rounding_in_bfloat16(change):
    rounding = Rounding.of_products(torch.bfloat16)
    assert not rounding.explains(computed(change(weight()), torch.bfloat16), *published(torch.bfloat16))


@pytest.mark.parametrize("scale", [0.5, 1.5, 2 / 3])
def test_an_adapter_whose_products_cancel_is_right_though_its_scaled_matrix_is_rounded(scale):
    """vLLM multiplies B by alpha / rank before it rounds it."""
    generator, dtype = torch.Generator().manual_seed(0), torch.bfloat16
    down = torch.randn(4, generator=generator).double()
    up = torch.randn(64, 4, generator=generator).double()
    up = (up - (up @ down)[:, None] * down / (down @ down)).to(dtype)  # nearly orthogonal to A r
    exact = up.double() * scale
    found = (up * scale).to(dtype).double() @ down
    sizes = exact @ down, exact.abs() @ down.abs()
    assert Rounding(torch.finfo(dtype).eps, DELTA_BOUND).explains(found, *sizes)
    assert not Rounding(torch.finfo(dtype).eps, DELTA_BOUND).explains(1.5 * found + 0.1, *sizes)


def test_elements_that_are_equal_up_to_rounding_have_no_other_cause():
    values = weight()[0].bfloat16().double()
    elements = {"norm": (values, values.abs())}
    near = values * (1 + 2**-8)
    wrong = WrongLayers({"norm": near}, elements, Rounding(torch.finfo(torch.bfloat16).eps, 1.0))
    known = Known("no known cause", changed=lambda words: elements)
    assert wrong.cause(known) == "no known cause"
