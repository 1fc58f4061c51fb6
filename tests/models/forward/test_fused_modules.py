"""MLPs and norms that keep less: the same numbers, fewer bytes, and nobody else's forward."""

import copy
import pickle
from unittest.mock import patch

import pytest
import torch
from architectures import SMALL
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.gemma.modeling_gemma import GemmaConfig, GemmaMLP
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from virtual_cuda import virtual_cuda

from truing.models.forward.fused_modules import FusedMlp, FusedRmsNorm, use_fused_modules
from truing.models.forward.recompute import count_saved_bytes


def mlp(act="silu"):
    torch.manual_seed(0)
    return LlamaMLP(LlamaConfig(hidden_size=16, num_attention_heads=2, intermediate_size=48, hidden_act=act))


def lean(plain):
    both = nn.ModuleList([copy.deepcopy(plain)])
    use_fused_modules(both)
    return both[0]


@pytest.mark.parametrize("act", ["silu", "gelu_pytorch_tanh", "relu", "linear"])
def test_numbers_and_gradients_are_those_of_transformers(act):
    plain = mlp(act)
    ours = lean(plain)
    assert type(ours) is FusedMlp
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
    assert type(lean(plain)) is FusedMlp


def saved_bytes(module, width):
    """Bytes that 100 tokens keep."""
    with count_saved_bytes(module) as count:
        module(torch.randn(100, width, requires_grad=True))
        return count()


def test_a_tensor_of_the_inner_width_less_is_kept():
    assert saved_bytes(mlp(), 16) - saved_bytes(lean(mlp()), 16) == 100 * 48 * 4


def test_a_copy_computes_with_its_own_weights():
    ours = lean(mlp())
    other = copy.deepcopy(ours)
    with torch.no_grad():
        other.down_proj.weight.zero_()
        x = torch.randn(2, 16)
        assert not other(x).any()
        assert ours(x).any()


class Clamped(LlamaMLP):
    """Parts of the same names, and the same numbers until some are large."""

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)).clamp(max=10) * self.up_proj(x))


def test_an_mlp_that_computes_something_else_is_left_alone():
    odd = Clamped(LlamaConfig(hidden_size=16, num_attention_heads=2, intermediate_size=48))
    assert type(lean(odd)) is Clamped


def test_what_an_activation_learns_keeps_its_gradient():
    learning = lean(mlp("xielu"))
    assert type(learning) is LlamaMLP
    learning(torch.randn(3, 16)).sum().backward()
    assert all(parameter.grad is not None for parameter in learning.act_fn.parameters())


@pytest.mark.parametrize("config", [Qwen2Config, Qwen3Config, MistralConfig, Gemma3TextConfig])
def test_the_usual_families_have_the_forward_of_llama(config):
    model = AutoModelForCausalLM.from_config(config(**SMALL, vocab_size=32, max_position_embeddings=64))
    use_fused_modules(model)
    assert sum(type(module) is FusedMlp for module in model.modules()) == SMALL["num_hidden_layers"]


def test_a_lean_mlp_can_be_pickled():
    x = torch.randn(2, 16)
    ours = lean(mlp())
    assert torch.equal(pickle.loads(pickle.dumps(ours))(x), ours(x))


def norm():
    torch.manual_seed(0)
    plain = LlamaRMSNorm(24, eps=1e-3)
    torch.nn.init.normal_(plain.weight)
    return plain


@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24), (0, 24)])
def test_a_norm_and_its_gradients_are_those_of_transformers(shape):
    plain, ours = norm().double(), lean(norm())
    assert type(ours) is FusedRmsNorm
    x = torch.randn(shape, requires_grad=True)
    x_plain = x.detach().double().requires_grad_()
    out, expected = ours(x), plain(x_plain)
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=1e-5)
    weights = torch.randn(shape)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad.double(), x_plain.grad, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(ours.weight.grad.double(), plain.weight.grad, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        assert torch.equal(ours(x), out)


def test_a_norm_in_half_precision_is_computed_in_float32():
    plain, ours = norm().bfloat16(), lean(norm()).bfloat16()
    x = torch.randn(5, 24, dtype=torch.bfloat16, requires_grad=True)
    x_plain = x.detach().clone().requires_grad_()
    out, expected = ours(x), plain(x_plain)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, expected)
    out.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, x_plain.grad, atol=0.02, rtol=0.02)
    torch.testing.assert_close(ours.weight.grad, plain.weight.grad, atol=0.02, rtol=0.02)


def test_a_frozen_norm_passes_gradients_on_and_gets_none():
    ours = lean(norm()).requires_grad_(False)
    x = torch.randn(3, 24, requires_grad=True)
    ours(x).sum().backward()
    assert x.grad is not None
    assert ours.weight.grad is None


def test_a_norm_keeps_its_input_and_a_number_per_token():
    assert saved_bytes(lean(norm()), 24) == 100 * 25 * 4
    assert saved_bytes(norm(), 24) >= 2 * 100 * 24 * 4


class Cubed(LlamaRMSNorm):
    """The same code with another number in it: 4 for 2."""

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(4).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


def test_a_norm_that_computes_something_else_is_left_alone():
    assert type(lean(Cubed(8))) is Cubed
    assert type(lean(Gemma3RMSNorm(8))) is Gemma3RMSNorm


def test_a_wrapped_forward_is_left_alone(monkeypatch):
    """Wrappers look alike, whatever is inside."""

    def wrapped(inner):
        def forward(self, hidden_states):
            return inner(self, hidden_states)

        return forward

    class Odd(LlamaRMSNorm):
        forward = wrapped(Cubed.forward)

    monkeypatch.setattr(LlamaRMSNorm, "forward", wrapped(LlamaRMSNorm.forward))
    assert type(lean(Odd(8))) is Odd


@pytest.mark.parametrize("config", [Qwen2Config, Qwen3Config, MistralConfig])
def test_the_usual_families_have_the_norm_of_llama(config):
    model = AutoModelForCausalLM.from_config(config(**SMALL, vocab_size=32, max_position_embeddings=64))
    use_fused_modules(model)
    norms = [type(module) for name, module in model.named_modules() if name.endswith("norm")]
    assert norms
    assert set(norms) == {FusedRmsNorm}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_cuda_a_norm_is_that_of_one_kernel(dtype):
    """It rounds once, where transformers rounds before the weight and after it."""
    torch.manual_seed(0)
    plain = LlamaRMSNorm(16).to(dtype)
    plain.weight.data.normal_(mean=1, std=0.2)
    x, exact = torch.randn(5, 16, dtype=dtype), lean(plain).double()
    with virtual_cuda(), torch.autocast("cuda", torch.bfloat16):
        ours, inputs = lean(plain).cuda(), x.cuda().requires_grad_()
        with patch("truing.models.forward.fused_modules._Normed", None):  # not asked
            out = ours(inputs)
        out.float().square().sum().backward()
        found = [each.detach().cpu() for each in (out, inputs.grad, ours.weight.grad)]
    assert {each.dtype for each in found} == {dtype}
    wanted = x.double().requires_grad_()
    exact(wanted).square().sum().backward()
    for one, other in zip(found, [exact(wanted), wanted.grad, exact.weight.grad], strict=True):
        assert float((one.double() - other).norm() / other.norm()) < 4 * torch.finfo(dtype).eps
