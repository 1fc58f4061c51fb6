"""Weights packed for drawing: the same products, and nothing kept."""

import gc
import weakref

import pytest
import torch
from torch import nn

from truing.models.forward.onednn_linear import linear_product, use_onednn
from truing.models.forward.packed_weights import packed_weights
from truing.models.load import load

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is without oneDNN")


def layer(*shape, bias=True):
    torch.manual_seed(0)
    quick = nn.Sequential(nn.Linear(*shape, bias=bias))
    use_onednn(quick)
    return quick


class Attention(nn.Module):
    """Projections by the names that are joined."""

    def __init__(self, bias=(True, True, True), key_input=24):
        super().__init__()
        torch.manual_seed(0)
        self.q_proj = nn.Linear(24, 12, bias=bias[0])
        self.k_proj = nn.Linear(key_input, 6, bias=bias[1])
        self.v_proj = nn.Linear(24, 6, bias=bias[2])
        use_onednn(self)


@pytest.mark.parametrize("rows", [1, 2, 7, 64, 700])
@pytest.mark.parametrize("shape", [(24, 7), (576, 1536), (1000, 33)])
def test_the_same_products_bit_for_bit(shape, rows):
    quick = layer(*shape)
    x = torch.randn(rows, shape[0])
    with torch.no_grad():
        before = quick(x)
        with packed_weights(quick):
            assert quick[0].packed is not None
            assert torch.equal(quick(x), before)
        assert quick[0].packed is None


@pytest.mark.parametrize("bias", [True, False])
def test_layers_of_the_same_input_are_computed_as_one(bias, monkeypatch):
    attention = Attention((bias,) * 3)
    one, other = torch.randn(1, 5, 24), torch.randn(1, 5, 24)
    layers = [attention.q_proj, attention.k_proj, attention.v_proj]
    with torch.no_grad():
        expected = [[each(x) for each in layers] for x in (one, other, one)]
        calls = []
        monkeypatch.setattr(
            "truing.models.forward.packed_weights.linear_product",
            lambda *a: calls.append(a) or linear_product(*a),
        )
        with packed_weights(attention):
            assert attention.q_proj.packed is attention.v_proj.packed
            results = [[each(x) for each in layers] for x in (one, other, one)]
    assert len(calls) == 3
    for several, right in zip(results, expected, strict=True):
        for a, b in zip(several, right, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_layers_that_are_given_other_inputs_in_turn_are_right_all_the_same():
    attention = Attention()
    one, other = torch.randn(3, 24), torch.randn(3, 24)
    order = [
        (attention.q_proj, one),
        (attention.k_proj, other),
        (attention.v_proj, one),
        (attention.q_proj, one),
    ]
    with torch.no_grad():
        expected = [each(x) for each, x in order]
        with packed_weights(attention):
            for (each, x), right in zip(order, expected, strict=True):
                torch.testing.assert_close(each(x), right, atol=1e-6, rtol=1e-5)


def test_an_input_that_is_strided_is_read_as_it_stands():
    attention, x = Attention(), torch.randn(24, 5).t()
    with torch.no_grad():
        expected = [each(x) for each in (attention.q_proj, attention.k_proj, attention.v_proj)]
        with packed_weights(attention):
            for each, right in zip(
                (attention.q_proj, attention.k_proj, attention.v_proj), expected, strict=True
            ):
                torch.testing.assert_close(each(x), right, atol=1e-6, rtol=1e-5)


def test_a_buffer_that_is_filled_anew_is_read_anew():
    attention, x = Attention(), torch.randn(3, 24)
    layers = [attention.q_proj, attention.k_proj, attention.v_proj]
    with torch.no_grad(), packed_weights(attention):
        before = [each(x).clone() for each in layers]
        x.mul_(2).add_(1)
        after = [each(x) for each in layers]
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("odd", [{"bias": (True, False, True)}, {"key_input": 10}])
def test_layers_that_are_not_alike_stay_apart(odd):
    attention = Attention(**odd)
    with packed_weights(attention):
        assert attention.q_proj.packed is not attention.k_proj.packed
        assert attention.k_proj.packed is not None


def test_a_model_draws_from_packed_weights_what_it_draws_from_plain_ones():
    model = load("tiny", device="cpu").model
    ids = torch.arange(40, 60)[None]
    with torch.no_grad():
        plain = model(ids).logits
        with packed_weights(model):
            layers = model.get_decoder().layers
            assert layers[0].self_attn.q_proj.packed is layers[0].self_attn.k_proj.packed
            assert layers[0].mlp.gate_proj.packed is layers[0].mlp.up_proj.packed
            torch.testing.assert_close(model(ids).logits, plain, atol=1e-5, rtol=1e-5)


def test_no_input_and_no_copy_is_kept():
    model, x = Attention(), torch.randn(3, 24)
    with torch.no_grad(), packed_weights(model):
        held = weakref.ref(model.q_proj.packed)
        for each in (model.q_proj, model.k_proj, model.v_proj):
            each(x)
        given = weakref.ref(x)
        del x
        assert given() is None
    gc.collect()
    assert held() is None


def test_packing_is_for_drawing_alone_and_for_what_onednn_computes():
    quick, x = layer(24, 7, bias=False), torch.randn(5, 24)
    with packed_weights(quick):
        quick(x).sum().backward()
    torch.testing.assert_close(quick[0].weight.grad, x.sum(0).expand(7, 24))
    with packed_weights(quick.bfloat16()):
        assert quick[0].packed is None


def test_nothing_is_packed_where_memory_is_short(monkeypatch):
    quick = layer(24, 7, bias=False)
    monkeypatch.setattr(
        "truing.models.forward.packed_weights.bytes_free", lambda device: 2 * quick[0].weight.nbytes
    )
    with packed_weights(quick):
        assert quick[0].packed is None
    monkeypatch.setattr(
        "truing.models.forward.packed_weights.bytes_free", lambda device: 2 * quick[0].weight.nbytes + 1
    )
    with packed_weights(quick):
        assert quick[0].packed is not None


def test_copies_are_freed_where_drawing_fails():
    quick = layer(24, 7)
    with pytest.raises(KeyboardInterrupt), packed_weights(quick):
        raise KeyboardInterrupt
    assert quick[0].packed is None
