"""The gradient of an embedding in bfloat16: summed over equal ids without loss."""

import pytest
import torch
from torch import nn

from truing.models.forward.float32_embedding import Float32SumEmbedding, use_float32_sums
from truing.models.tiny import tiny_model


def gradient(kind, ids, grad, dtype=torch.bfloat16):
    torch.manual_seed(0)
    layer = kind(10, 16).to(dtype)
    out = layer(ids)
    out.backward(grad.to(dtype))
    return out.detach(), layer.weight.grad


@pytest.mark.parametrize("count", [1, 64, 4096])
def test_the_gradients_of_equal_ids_are_summed_in_float32(count):
    torch.manual_seed(1)
    ids = torch.tensor([3, 7]).repeat_interleave(count)[None]
    grad = torch.randn(1, 2 * count, 16).add(0.5).bfloat16()
    rows, got = gradient(Float32SumEmbedding, ids, grad)
    plain_rows, in_bfloat16 = gradient(nn.Embedding, ids, grad)
    exact = torch.zeros(10, 16, dtype=torch.float64).index_add(0, ids[0], grad[0].double())
    assert torch.equal(rows, plain_rows)
    assert got.dtype == torch.bfloat16
    assert float((got.double() - exact).norm() / exact.norm()) < 2.0**-8
    if count == 4096:
        assert float((in_bfloat16.double() - exact).norm() / exact.norm()) > 0.1  # what is avoided


def test_in_float32_and_without_gradients_it_is_the_plain_one():
    ids, grad = torch.tensor([[1, 1, 4]]), torch.randn(1, 3, 16)
    for got, expected in zip(
        gradient(Float32SumEmbedding, ids, grad, torch.float32),
        gradient(nn.Embedding, ids, grad, torch.float32),
        strict=True,
    ):
        assert torch.equal(got, expected)
    layer = Float32SumEmbedding(10, 16).bfloat16()
    with torch.no_grad():
        assert torch.equal(layer(ids), layer.weight[ids])


def test_a_frozen_embedding_gets_no_gradient():
    layer = Float32SumEmbedding(10, 16).bfloat16().requires_grad_(False)
    assert not layer(torch.tensor([[1, 2]])).requires_grad


def test_the_embedding_of_a_model_is_replaced():
    model = tiny_model().bfloat16()
    use_float32_sums(model)
    assert type(model.get_input_embeddings()) is Float32SumEmbedding
