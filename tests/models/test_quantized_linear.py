"""Linear layers in 4 bits: they compute what plain layers with the dequantized weights compute."""

import copy

import pytest
import torch
from scipy.stats import norm
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from truing.doctor.oracle.nf4 import LEVELS, nf4_weight
from truing.errors import ModelError
from truing.models import quantized_linear
from truing.models.forward.onednn_linear import use_onednn
from truing.models.quantized_linear import (
    QuantizedLinear,
    dequantize_layers,
    plain_weight,
    quantize_layers,
)

pytestmark = pytest.mark.quantization

SHAPES = ((64, 128, True), (48, 80, False), (1, 64, True))
"""Inputs, outputs and bias; 48 and 80 are no whole blocks."""


def layer_of(inputs, outputs, bias, dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs, bias=bias, dtype=dtype).requires_grad_(False)


def plain_of(quantized):
    holder = nn.Sequential(copy.deepcopy(quantized))
    dequantize_layers(holder, quantized.dtype)
    use_onednn(holder)
    return holder[0]


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_are_those_of_the_dequantized_weights(shape, dtype, rows):
    quantized = QuantizedLinear(layer_of(*shape, dtype))
    x, other = (torch.randn(2, rows, shape[0], dtype=dtype) for _ in range(2))
    other.copy_(x)
    x.requires_grad_()
    other.requires_grad_()
    out, expected = quantized(x), plain_of(quantized)(other)
    assert torch.equal(out, expected)
    with torch.no_grad():
        assert torch.equal(quantized(x), out)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(x.grad, other.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_oracle_dequantizes_to_the_same_bits(shape, dtype):
    quantized = QuantizedLinear(layer_of(*shape, dtype))
    expected = nf4_weight(quantized.weight, quantized.absmax, quantized.in_features, dtype)
    assert torch.equal(plain_weight(quantized), expected)


def test_a_weight_is_the_nearest_level_times_the_largest_of_its_block():
    layer = layer_of(128, 3, False)
    blocks = layer.weight.unflatten(1, (2, 64)).double()
    scale = blocks.abs().amax(-1, keepdim=True)
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    nearest = levels[(blocks / scale).unsqueeze(-1).sub(levels).abs().argmin(-1)] * scale
    torch.testing.assert_close(plain_weight(QuantizedLinear(layer)).double(), nearest.flatten(1))


def test_the_levels_are_quantiles_of_a_normal_distribution():
    """Eight above 0 and seven below, as the appendix of the paper makes them."""
    top = 0.9677083
    above = norm.ppf(torch.linspace(top, 0.5, 9, dtype=torch.float64)[:-1])
    below = -norm.ppf(torch.linspace(top, 0.5, 8, dtype=torch.float64)[:-1])
    expected = sorted([*above, 0.0, *below])
    assert [each / max(expected) for each in expected] == pytest.approx(LEVELS, abs=2e-7)


def test_autocast_computes_in_its_dtype_and_gradients_keep_that_of_the_input(monkeypatch):
    """As on CUDA, where oneDNN computes nothing."""
    monkeypatch.setattr(quantized_linear, "onednn_computes", lambda *_: False)
    quantized, x = QuantizedLinear(layer_of(*SHAPES[0])), torch.randn(4, 64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = quantized(x)
        expected = nn.functional.linear(x.detach(), plain_weight(quantized), quantized.bias)
    assert out.dtype is torch.bfloat16
    assert torch.equal(out, expected)
    out.sum().backward()
    assert x.grad.dtype is torch.float32
    torch.testing.assert_close(x.grad, plain_weight(quantized).sum(0).expand(4, -1), rtol=2e-2, atol=2e-2)


def test_shapes_without_data_take_the_same_bytes():
    layer = layer_of(*SHAPES[1])
    held, shapes = QuantizedLinear(layer), QuantizedLinear(copy.deepcopy(layer).to("meta"))
    for name, weight in held.named_parameters():
        assert shapes.get_parameter(name).shape == weight.shape
        assert shapes.get_parameter(name).dtype is weight.dtype
    assert held.weight.nbytes + held.absmax.nbytes == 80 * (32 + 4)  # a block of 64 weights in each row


def test_embeddings_and_head_are_not_quantized():
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=64,
            hidden_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=128,
            tie_word_embeddings=False,
        )
    )
    quantize_layers(model)
    quantized = {name for name, part in model.named_modules() if isinstance(part, QuantizedLinear)}
    assert len(quantized) == 7
    assert all(name.startswith("model.layers.0.") for name in quantized)


def test_a_matrix_that_is_no_linear_layer_is_refused():
    model = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=64, n_embd=64, n_layer=1, n_head=2))
    with pytest.raises(ModelError, match=r"cannot hold in 4 bits\n.*c_attn \(Conv1D: weight\)"):
        quantize_layers(model)


def test_without_bitsandbytes_the_extra_is_named(monkeypatch):
    def absent(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(quantized_linear.importlib, "import_module", absent)
    with pytest.raises(ModelError, match=r"pip install truing\[quantization\]"):
        QuantizedLinear(layer_of(*SHAPES[0]))
