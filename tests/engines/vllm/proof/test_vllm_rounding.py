"""What rounding explains of a layer's outputs, and what it does not, in each dtype of an engine."""

import pytest
import torch

from truing.engines.vllm.proof.changed_weights import CHANGES
from truing.engines.vllm.proof.layer_causes import Known, cause_of
from truing.engines.vllm.proof.probe import DELTA_BOUND
from truing.engines.vllm.proof.rounding import Rounding
from truing.engines.vllm.proof.wrong_layers import WrongLayers
from truing.engines.vllm.worker.truing_vllm_worker import probe_vector

R = probe_vector(512, 3)
KNOWN = Known("no known cause")


def weight(seed=0):
    return torch.randn(512, 512, generator=torch.Generator().manual_seed(seed))


def response(w):
    return w.double() @ R.double(), w.double().abs().sum(1)


def published(dtype):
    return response(weight().to(dtype))


def computed(w, dtype):
    """As a kernel does that sums in float32 and rounds once."""
    return (w.to(dtype).float() @ R).to(dtype).double()


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
        CHANGES["quantized to int4, with a scale for 32 inputs"],
        lambda w: w.index_put((torch.tensor(7), torch.tensor(0)), w[7, 0] + 12),
        lambda w: w.index_fill(0, torch.tensor([9]), 0.0),
        lambda w: w * torch.nan,
    ],
    ids=["noise of 1 %", "int4", "one element", "one output", "NaN"],
)
def test_changed_weights_are_beyond_rounding_in_bfloat16(change):
    rounding = Rounding.of_products(torch.bfloat16)
    assert not rounding.explains(computed(change(weight()), torch.bfloat16), *published(torch.bfloat16))


def test_a_worker_with_older_weights_in_bfloat16_is_named_by_the_outputs_that_it_holds():
    """What it holds of the inputs of the second layer changes all of that layer's outputs, some by little."""
    before = {n: weight(n) + 0.5 * weight(n + 8) for n in range(2)}
    earlier = {f"layer {n}": response(each.bfloat16()) for n, each in before.items()}

    def found(n):
        other = torch.cat([weight(n)[:256], before[n][256:]])
        return other if n == 0 else torch.cat([weight(n)[:, :256], before[n][:, 256:]], 1)

    cause = causes(found, Known("", earlier=[("the weights of version 1", earlier)]), layers=2)
    assert "in 1 of them only outputs 25" in cause
    assert cause.endswith("to 511 of the 512 of layer 0 differ; they are the weights of version 1")


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


def causes(found, known=KNOWN, dtype=torch.bfloat16, layers=1):
    names = [f"layer {n}" for n in range(layers)]
    wrong = {name: computed(found(n), dtype) for n, name in enumerate(names)}
    expected = {name: response(weight(n).to(dtype)) for n, name in enumerate(names)}
    return cause_of(WrongLayers(wrong, expected, Rounding.of_products(dtype)), known)


def test_other_weights_in_bfloat16_are_not_taken_for_reordered_ones():
    assert causes(lambda _: weight(5)) == "no known cause"
    assert "in another order" in causes(lambda _: weight().roll(64, 0))


def test_weights_that_are_nearly_the_published_ones_do_not_explain_others():
    """With large factors two nearly equal layers add up to any third one."""
    near = {"layer 0": response(weight() + 1e-6 * weight(1))}
    known = Known("no known cause", earlier=[("those of the start", near)])
    assert causes(lambda _: weight() + 0.01 * weight(1), known, torch.float32) == "no known cause"


def test_outputs_of_one_layer_name_the_cause_if_those_of_others_are_unknown():
    before = {f"layer {n}": response(weight(n + 8)) for n in range(2)}

    def found(n):
        other = torch.cat([weight(n)[:256], weight(n + 8)[256:]])
        return other if n == 0 else torch.cat([weight(n)[:, :256], weight(n + 8)[:, 256:]], 1)

    cause = causes(found, Known("", earlier=[("the weights of version 1", before)]), torch.float32, layers=2)
    expected = "only outputs 256 to 511 of the 512 of layer 0 differ; they are the weights of version 1"
    assert cause == f"in 1 of them {expected}"


def test_elements_that_are_equal_up_to_rounding_have_no_other_cause():
    values = weight()[0].bfloat16().double()
    elements = {"norm": (values, values.abs())}
    near = values * (1 + 2**-8)
    wrong = WrongLayers({"norm": near}, elements, Rounding(torch.finfo(torch.bfloat16).eps, 1.0))
    known = Known("no known cause", changed=lambda words: elements)
    assert cause_of(wrong, known) == "no known cause"
