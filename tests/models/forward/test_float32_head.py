"""The output head with weights in bfloat16: logits in float32, as exact as products of its inputs can be."""

import pytest
import torch
from torch import nn

from truing.models.forward import float32_head
from truing.models.forward.float32_head import Float32Head, use_float32_head
from truing.models.forward.onednn_linear import OneDnnLinear
from truing.models.tiny import tiny_model

WIDTH, VOCABULARY = 48, 37


def head(dtype=torch.bfloat16, bias=False):
    torch.manual_seed(0)
    return Float32Head(WIDTH, VOCABULARY, bias=bias).to(dtype)


def states(dtype=torch.bfloat16):
    torch.manual_seed(1)
    return torch.randn(3, 5, WIDTH).to(dtype).requires_grad_()


@pytest.mark.parametrize("chunk", [1 << 22, 10 * WIDTH, 1], ids=["at once", "ten rows", "row by row"])
@pytest.mark.parametrize("bias", [False, True])
def test_logits_and_gradients_are_those_of_float64(monkeypatch, chunk, bias):
    monkeypatch.setattr(float32_head, "CHUNK_ENTRIES", chunk)
    layer, x = head(bias=bias), states()
    exact = nn.Linear(WIDTH, VOCABULARY, bias=bias).double()
    exact.load_state_dict({name: each.double() for name, each in layer.state_dict().items()})
    exact_x = x.detach().double().requires_grad_()
    logits, exact_logits = layer(x), exact(exact_x)
    assert logits.dtype == torch.float32
    assert not logits._is_view()
    torch.testing.assert_close(logits.double(), exact_logits, atol=2e-6, rtol=0)
    grad = torch.randn_like(logits)
    logits.backward(grad)
    exact_logits.backward(grad.double())
    for got, expected in ((x, exact_x), (layer.weight, exact.weight)):
        # summed in float32, rounded to bfloat16 once
        assert got.grad.dtype == torch.bfloat16
        rounding = (got.grad.double() - expected.grad).abs()
        assert bool((rounding <= 2.0**-8 * expected.grad.abs() + 1e-5).all())


def test_a_frozen_head_gets_no_gradient():
    layer, x = head().requires_grad_(False), states()
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None


def test_in_float32_it_computes_what_the_layer_before_computed():
    layer, x = head(torch.float32), states(torch.float32)
    before = OneDnnLinear(WIDTH, VOCABULARY, bias=False)
    before.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), before(x))


def test_the_head_of_a_model_is_replaced():
    model = tiny_model().bfloat16()
    model.requires_grad_(False)
    ids = torch.arange(6)[None]
    rounded = model(input_ids=ids).logits
    use_float32_head(model)
    logits = model(input_ids=ids).logits
    assert (rounded.dtype, logits.dtype) == (torch.bfloat16, torch.float32)
    assert 0 < float((logits - rounded.float()).abs().max()) < 2.0**-7 * float(logits.abs().max())


def test_under_autocast_weights_in_float32_multiply_in_bfloat16_and_give_float32():
    """On CUDA a model in float32 computes so, and its sampler, trainer and audits get the same logits."""
    layer, x = head(torch.float32), states(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logits = layer(x)
    exact_x, exact_weight = (each.detach().bfloat16().double().requires_grad_() for each in (x, layer.weight))
    exact_logits = exact_x @ exact_weight.T
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), exact_logits, atol=2e-6, rtol=0)
    grad = torch.randn_like(logits)
    logits.backward(grad)
    exact_logits.backward(grad.double())
    for got, expected in ((x, exact_x), (layer.weight, exact_weight)):
        assert got.grad.dtype == torch.float32
        torch.testing.assert_close(got.grad.double(), expected.grad, atol=1e-4, rtol=1e-4)
