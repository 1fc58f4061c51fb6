"""Linear layers by oneDNN, against torch's own in float64."""

import copy

import pytest
import torch
from architectures import SMALL
from peft import LoraConfig, get_peft_model
from peft.tuners import lora
from torch import nn
from transformers import AutoModelForCausalLM, Qwen2Config
from virtual_cuda import virtual_cuda

from truing.models.forward.fused_lora import FusedLora
from truing.models.forward.onednn_linear import OneDnnLinear, use_onednn
from truing.models.load import load
from truing.models.lora import add_lora

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is without oneDNN")


def pair(bias):
    """A layer, and the same in float64 by torch."""
    torch.manual_seed(0)
    plain = nn.Linear(24, 7, bias=bias)
    quick = nn.Sequential(copy.deepcopy(plain))
    use_onednn(quick)
    assert type(quick[0]) is OneDnnLinear
    return quick[0], plain.double()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (5, 24), (2, 3, 24), (0, 24)])
def test_products_and_gradients(shape, bias):
    quick, slow = pair(bias)
    x = torch.randn(shape, requires_grad=True)
    x_slow = x.detach().double().requires_grad_()
    out, expected = quick(x), slow(x_slow)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(expected.shape)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    given = [x, *quick.parameters()]
    for one, other in zip(given, [x_slow, *slow.parameters()], strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, atol=1e-5, rtol=1e-5)
    with torch.inference_mode():
        assert torch.equal(quick(x), out)


def test_inputs_that_are_strided():
    quick, slow = pair(bias=True)
    x = torch.randn(24, 9).t()
    torch.testing.assert_close(quick(x).double(), slow(x.double()), atol=1e-5, rtol=1e-5)


def test_a_frozen_weight_gets_no_gradient():
    quick, _ = pair(bias=False)
    quick.requires_grad_(False)
    x = torch.randn(3, 24, requires_grad=True)
    quick(x).sum().backward()
    assert x.grad is not None
    assert quick.weight.grad is None


def test_what_is_not_float32_is_left_to_torch():
    quick, slow = pair(bias=True)
    x = torch.randn(3, 24, dtype=torch.float64)
    assert torch.equal(quick.double()(x), slow(x))


def test_a_loaded_model_computes_so_under_an_adapter_too():
    model = load("tiny", device="cpu").model
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert linear
    assert all(type(model.get_submodule(name)) is OneDnnLinear for name in linear)
    assert type(copy.deepcopy(model).get_output_embeddings()) is OneDnnLinear
    policy = add_lora(model, rank=2, alpha=4.0, dropout=0.0, targets="all-linear", seed=0)
    bases = [module for name, module in policy.named_modules() if name.endswith("base_layer")]
    assert bases
    assert all(type(base) is OneDnnLinear for base in bases)


def adapted(dropout=0.0, dtype="float32", device="cpu"):
    """A policy whose adapter changes something, and the same by peft alone."""
    policy = add_lora(
        load("tiny", device=device, dtype=dtype).model,
        rank=3,
        alpha=6.0,
        dropout=dropout,
        targets="all-linear",
        seed=0,
    )
    generator = torch.Generator().manual_seed(1)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(generator=generator)
    by_peft = copy.deepcopy(policy)
    for module in by_peft.modules():
        if type(module) is FusedLora:
            module.__class__ = lora.Linear
    return policy, by_peft


def assert_same_gradients(one, other):
    ids = torch.arange(40, 60)[None]
    for policy in (one, other):
        torch.manual_seed(0)
        policy(ids).logits.logsumexp(-1).sum().backward()
    compared = 0
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-4)
            compared += 1
    assert compared


def test_an_adapter_is_added_as_peft_adds_it(monkeypatch):
    policy, by_peft = adapted()
    assert_same_gradients(policy, by_peft)
    monkeypatch.setattr(lora.Linear, "forward", None)
    policy(torch.arange(40, 60)[None])  # peft is not asked


def test_on_cuda_an_adapter_in_bfloat16_is_added_as_precisely_as_by_peft():
    """Beside the same layer in float64; the gradients of the adapter stay float32."""
    errors = {}
    for kind in (FusedLora, lora.Linear):
        with virtual_cuda():
            policy = adapted(dtype="bfloat16", device="cuda")[kind is lora.Linear]
            layer = policy.base_model.model.model.layers[0].mlp.up_proj
            assert type(layer) is kind
            x = (
                torch.randn(50, layer.in_features, generator=torch.Generator().manual_seed(0))
                .bfloat16()
                .cuda()
            )
            x.requires_grad_()
            with torch.autocast("cuda", torch.bfloat16):
                out = layer(x)
            out.float().square().sum().backward()
            a, b = (part["default"].weight for part in (layer.lora_A, layer.lora_B))
            assert (out.dtype, a.grad.dtype, b.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)
            found = [each.detach().cpu().double() for each in (out, x.grad, a.grad, b.grad)]
            inputs = [each.detach().cpu().double() for each in (x, layer.base_layer.weight, a, b)]
        x, weight, a, b = (each.requires_grad_() for each in inputs)
        exact = x @ weight.T + layer.scaling["default"] * (x @ a.T @ b.T)
        exact.square().sum().backward()
        exacts = [exact.detach(), x.grad, a.grad, b.grad]
        errors[kind] = [float((f - e).norm() / e.norm()) for f, e in zip(found, exacts, strict=True)]
    for fused, by_peft in zip(errors[FusedLora], errors[lora.Linear], strict=True):
        assert 0 < fused < 1.1 * by_peft < 0.02


def test_hooks_of_an_adapter_are_called():
    policy, _ = adapted()
    layer = policy.base_model.model.model.layers[0].mlp.up_proj
    seen = []
    for part in (layer.base_layer, layer.lora_A["default"], layer.lora_B["default"]):
        part.register_forward_hook(lambda module, *_: seen.append(module))
    policy(torch.arange(40, 60)[None])
    assert len(seen) == 3


def test_with_dropout_or_without_the_adapter_peft_computes():
    policy, by_peft = adapted(dropout=0.5)
    assert_same_gradients(policy.train(), by_peft.train())
    ids = torch.arange(40, 60)[None]
    with policy.disable_adapter(), by_peft.disable_adapter(), torch.no_grad():
        assert torch.equal(policy(ids).logits, by_peft(ids).logits)


@pytest.mark.parametrize("changes", [{"bias": "lora_only"}, {"use_dora": True}, {"lora_bias": True}])
def test_rarer_adapters_are_left_to_peft(changes):
    """A bias that is trained, DoRA, an adapter with a bias: the gradients are peft's."""
    config = Qwen2Config(**SMALL, vocab_size=64, max_position_embeddings=64)
    policies = []
    for quick in (True, False):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        policy = get_peft_model(model, LoraConfig(r=3, target_modules=["q_proj", "v_proj"], **changes))
        generator = torch.Generator().manual_seed(1)
        for name, parameter in policy.named_parameters():
            if "lora_" in name:
                parameter.data.normal_(generator=generator)
        if quick:
            use_onednn(policy)
            assert any(type(module) is FusedLora for module in policy.modules())
        policies.append(policy)
    assert_same_gradients(*policies)


def test_a_merged_adapter_is_not_added_twice():
    policy, by_peft = adapted()
    policy.merge_adapter()
    ids = torch.arange(40, 60)[None]
    with torch.no_grad():
        torch.testing.assert_close(policy(ids).logits, by_peft(ids).logits, atol=1e-4, rtol=1e-4)
