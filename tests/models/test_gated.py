"""Gated MLPs that keep less: the same numbers, fewer bytes, and nobody else's forward."""

import copy

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.gemma.modeling_gemma import GemmaConfig, GemmaMLP
from transformers.models.llama.modeling_llama import LlamaMLP

from truing.models.gated import Lean, keep_less
from truing.models.recompute import counting_kept


def mlp(act="silu"):
    torch.manual_seed(0)
    return LlamaMLP(LlamaConfig(hidden_size=16, num_attention_heads=2, intermediate_size=48, hidden_act=act))


def lean(plain):
    both = nn.ModuleList([copy.deepcopy(plain)])
    keep_less(both)
    return both[0]


@pytest.mark.parametrize("act", ["silu", "gelu_pytorch_tanh", "relu", "linear"])
def test_numbers_and_gradients_are_those_of_transformers(act):
    plain = mlp(act)
    ours = lean(plain)
    assert isinstance(ours, Lean)
    x = torch.randn(5, 16, requires_grad=True)
    x_plain = x.detach().clone().requires_grad_()
    out, expected = ours(x), plain(x_plain)
    assert torch.equal(out, expected)
    weights = torch.randn(expected.shape)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    given = [x, *ours.parameters()]
    for one, other in zip(given, [x_plain, *plain.parameters()], strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-5)


def test_gemma_has_one_too():
    plain = GemmaMLP(GemmaConfig(hidden_size=16, intermediate_size=48, num_attention_heads=2))
    assert isinstance(lean(plain), Lean)


def test_a_tensor_of_the_inner_width_less_is_kept():
    kept = {}
    for name, module in {"plain": mlp(), "lean": lean(mlp())}.items():
        with counting_kept(module) as count:
            module(torch.randn(100, 16, requires_grad=True))
            kept[name] = count()
    assert kept["plain"] - kept["lean"] == 100 * 48 * 4


def test_a_copy_computes_with_its_own_weights():
    ours = lean(mlp())
    other = copy.deepcopy(ours)
    with torch.no_grad():
        other.down_proj.weight.zero_()
        x = torch.randn(2, 16)
        assert not other(x).any()
        assert ours(x).any()


class Halved(LlamaMLP):
    """Parts of the same names, and another formula."""

    def forward(self, x):
        return super().forward(x) / 2


def test_an_mlp_that_computes_something_else_is_left_alone():
    torch.manual_seed(0)
    odd = Halved(LlamaConfig(hidden_size=16, num_attention_heads=2, intermediate_size=48))
    assert type(lean(odd)) is Halved
