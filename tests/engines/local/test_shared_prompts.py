"""Attention of rows that share prompts, against torch's for each row alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from truing.engines.local.shared_prompts import attend, blocks_of


def test_a_block_has_as_many_slots_as_a_prompt_has_rows_on_average():
    assert blocks_of([7, 7, 4, 4]) == ([7, 4], 2, [0, 1, 2, 3])
    assert blocks_of([4, 7, 4, 4, 4]) == ([4, 4, 7], 2, [0, 4, 1, 2, 3])
    assert blocks_of([3, 1, 2]) == ([3, 1, 2], 1, [0, 1, 2])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_each_row_has_a_slot_of_its_prompt_and_fewer_than_half_are_empty(prompt_of_row):
    blocks = blocks_of(prompt_of_row)
    assert len(set(blocks.slots)) == len(prompt_of_row)
    assert [blocks.prompts[slot // blocks.size] for slot in blocks.slots] == prompt_of_row
    assert blocks.count < 2 * len(prompt_of_row)
    assert len(blocks.prompts) <= 3 * len(set(prompt_of_row))


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (3, 1)])
def test_each_slot_attends_to_its_prompt_and_to_its_own_tokens(heads, key_heads):
    torch.manual_seed(0)
    blocks, size, width, longest, room, filled = 3, 2, 8, 5, 4, 3
    rows = blocks * size
    query = torch.randn(heads, rows, width)
    prompts = torch.randn(2, blocks, key_heads, longest, width)
    own = torch.randn(2, rows, key_heads, room, width)
    seen_BS = torch.tensor([[False, False, True, True, True], [True] * 5, [False] * 4 + [True]])
    seen_T = torch.arange(room) < filled
    out = attend(query, prompts, own, seen_BS, seen_T, 0.3)
    for row in range(rows):
        block = row // size
        keys, values = torch.cat([prompts[:, block][:, :, seen_BS[block]], own[:, row, :, :filled]], dim=2)
        alone = scaled_dot_product_attention(query[:, row, None], keys, values, scale=0.3, enable_gqa=True)
        torch.testing.assert_close(out[:, row], alone[:, 0], atol=1e-6, rtol=1e-5)
