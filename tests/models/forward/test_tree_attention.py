"""Attention along a tree against masked attention, forward and backward, in float32 and bfloat16."""

import random
from types import SimpleNamespace

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from truing.engines.local.kv_cache import KVCache, RowCache
from truing.models.forward.token_tree import build_tree
from truing.models.forward.tree_attention import _TreeAttention

HEADS, KEY_HEADS, WIDTH, SCALE = 4, 2, 32, 32**-0.5
LAYER = SimpleNamespace(num_key_value_groups=HEADS // KEY_HEADS, is_causal=True)
FLOAT32_ERROR = 2e-5
"""Of sums of about a hundred products of numbers near 1, forward or backward."""


def random_tree(seed):
    """Return the tree of rows that branch at random places from one row."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    trunk = torch.randint(0, 2, (60,), generator=generator)
    rows = [
        torch.cat(
            [trunk[: rng.randint(5, 60)], torch.randint(0, 2, (rng.randint(1, 50),), generator=generator)]
        )
        for _ in range(8)
    ]
    return build_tree(rows)


def tensors(length, seed):
    """Return query, key, value and the gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, heads, length, WIDTH, generator=generator)
        for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)
    ]


def masked(tree, query, key, value):
    """Return transformers' attention under the tree as a mask."""
    place = torch.arange(len(tree.ends_L))
    sees = (place[None] <= place[:, None]) & (place[:, None] < tree.ends_L[None])
    out, _ = sdpa_attention_forward(LAYER, query, key, value, sees[None, None], scaling=SCALE)
    return out.transpose(1, 2)


def results(attention, inputs, dtype):
    """Return output and gradients of an attention in a dtype, from inputs rounded to bfloat16."""
    query, key, value, grad = (each.bfloat16().to(dtype) for each in inputs)
    leaves = [each.requires_grad_() for each in (query, key, value)]
    out = attention(*leaves)
    out.backward(grad)
    assert all(each.grad.dtype == each.dtype == out.dtype == dtype for each in leaves)
    return [out.detach(), *(each.grad for each in leaves)]


def errors(got, exact):
    """Return the root mean square of each difference, relative to the exact values."""
    return [
        float((one.double() - other).norm() / other.norm()) for one, other in zip(got, exact, strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_computes_masked_attention_with_its_gradients(seed):
    tree = random_tree(seed)
    inputs = tensors(len(tree.ends_L), seed)

    def along_tree(query, key, value):
        return _TreeAttention.apply(query, key, value, tree.segments(), SCALE)

    def under_mask(query, key, value):
        return masked(tree, query, key, value)

    exact = results(under_mask, inputs, torch.float64)
    assert max(errors(results(along_tree, inputs, torch.float32), exact)) < FLOAT32_ERROR
    in_tree, in_mask = (
        errors(results(each, inputs, torch.bfloat16), exact) for each in (along_tree, under_mask)
    )
    # each piece of a path is rounded once more than masked attention rounds the whole
    for one, other in zip(in_tree, in_mask, strict=True):
        assert one < 2 * other < 0.02


def test_shares_of_a_path_sum_to_1_beside_large_scores():
    """As in a run that diverges: all keys are equal, and scores so large that the logarithm of their sum has
    two digits behind the point. Every value is 1, so every output is.
    """
    tree = random_tree(0)
    query, key, value, _ = tensors(len(tree.ends_L), 0)
    same = 200 * key[:, :, :1].expand_as(key).contiguous()
    out = _TreeAttention.apply(200 * query, same, torch.ones_like(value), tree.segments(), SCALE)
    assert float((out - 1).abs().max()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cached_rows_and_a_shared_prefix_compute_masked_attention(dtype):
    """Two rows of 3 and 5 own tokens continue one prefix of 7; each gets one more token."""
    own, prefix = (3, 5), 7
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(*shape, WIDTH, generator=generator).to(dtype)

    shared = draw(2, 1, KEY_HEADS, prefix)
    caches = [RowCache(length, {0: draw(2, KEY_HEADS, length)}) for length in own]
    query, key, value = draw(1, HEADS, 2), draw(1, KEY_HEADS, 2), draw(1, KEY_HEADS, 2)
    partial = KVCache(caches).attend(0, query, key, value, SCALE, [1, 1])
    partial.attend(slice(0, 2), *shared, SCALE)
    assert partial.result().dtype == dtype
    for row, cache in enumerate(caches):
        keys, values = (
            torch.cat([shared[i][0], cache.layers[0][i], new[0, :, row : row + 1]], dim=1).double()
            for i, new in enumerate((key, value))
        )
        whole = (keys[None], values[None])
        expected, _ = sdpa_attention_forward(
            LAYER, query[:, :, row : row + 1].double(), *whole, None, scaling=SCALE, is_causal=False
        )
        (error,) = errors([partial.result()[0, :, row]], [expected[0, 0]])
        assert error < (1e-6 if dtype is torch.float32 else 5e-3)
