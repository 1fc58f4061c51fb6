"""Random rounding: how far results and gradients are off, and what it leaves as it is."""

import pytest
import torch
from torch import nn

from truing.models.forward.rounding_noise import (
    device_and_precision,
    is_coarse,
    product_rounding,
    random_rounding,
)


class Layers(nn.Module):
    """Two linear layers with an activation between them."""

    device = torch.device("cpu")

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64)).to(dtype)

    def forward(self, x):
        """Return the output of the layers."""
        return self.layers(x)


def results(model, seed=None):
    """The output, the gradient of the first weight, and the bytes saved for the backward pass."""
    x = torch.linspace(-1, 1, 32 * 64).view(32, 64).to(model.layers[0].weight)
    saved = {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        if seed is None:
            out = model(x)
            out.double().square().sum().backward()
        else:
            with random_rounding(model, seed):
                out = model(x)
                out.double().square().sum().backward()
    return (
        out.detach(),
        model.layers[0].weight.grad,
        sum(each.untyped_storage().nbytes() for each in saved.values()),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_and_gradient_are_off_by_rounding(dtype):
    model, eps = Layers(dtype), torch.finfo(dtype).eps
    (out, gradient, _), (off, gradient_off, _) = results(model), results(model, seed=1)
    for exact, other in ((out, off), (gradient, gradient_off)):
        relative = float((other - exact).norm() / exact.norm())
        assert 0.05 * eps < relative < 5 * eps
    assert all(
        torch.equal(one, other) for one, other in zip(results(model, 1)[:2], (off, gradient_off), strict=True)
    )
    assert not torch.equal(results(model, 2)[0], off)


def test_it_saves_nothing_for_the_backward_pass():
    """A saved factor in float32 per output would triple the memory of a micro-batch in bfloat16."""
    model = Layers(torch.bfloat16)
    assert results(model, seed=1)[2] == results(model)[2]


def test_the_global_random_state_stays():
    model, before = Layers(torch.float32), torch.get_rng_state()
    results(model, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_rounding_of_products_is_measured(monkeypatch):
    """A device that multiplies in TF32 keeps 10 bits, whatever setting makes it do so."""
    cpu, exact = torch.device("cpu"), torch.Tensor.__matmul__
    product_rounding.cache_clear()
    assert product_rounding(cpu) < 2.0**-23
    assert device_and_precision(Layers(torch.float32)) == "cpu"

    def coarse(left, right):
        return exact(
            *(each.view(torch.int32).bitwise_and(-1 << 13).view(torch.float32) for each in (left, right))
        )

    product_rounding.cache_clear()
    monkeypatch.setattr(torch.Tensor, "__matmul__", coarse)
    assert 2.0**-11 < product_rounding(cpu) < 2.0**-9
    assert is_coarse(device_and_precision(Layers(torch.float32)))
    product_rounding.cache_clear()
