"""Attention of rows that share prompts: the keys and values of a prompt are stored and read once.

Shapes: B blocks, each of one prompt of S columns and of R slots for rows; H heads in K groups that share
keys, D numbers each; T columns of the rows' own tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from truing.models.forward.float32_product import float32_product


class Blocks(NamedTuple):
    """Slots for rows, in blocks that share a prompt."""

    prompts: list[int]  # of each block
    size: int  # slots of a block
    slots: list[int]  # of each row

    @property
    def count(self) -> int:
        """Slots of all blocks."""
        return len(self.prompts) * self.size


def blocks_of(prompt_of_row: Sequence[int]) -> Blocks:
    """Return slots for rows by their prompts; fewer than half stay empty.

    A block has as many slots as a prompt has rows on average.
    """
    rows_of: dict[int, list[int]] = {}
    for row, prompt in enumerate(prompt_of_row):
        rows_of.setdefault(prompt, []).append(row)
    size = len(prompt_of_row) // len(rows_of)
    prompts, slots = [], [0] * len(prompt_of_row)
    for prompt, rows in rows_of.items():
        for start in range(0, len(rows), size):
            for i, row in enumerate(rows[start : start + size]):
                slots[row] = len(prompts) * size + i
            prompts.append(prompt)
    return Blocks(prompts, size, slots)


def attend(
    query_HND: Tensor,
    prompts_2BKSD: Tensor,
    own_2NKTD: Tensor,
    seen_BS: Tensor,
    seen_T: Tensor,
    scale: float,
) -> Tensor:
    """Return the attention of N = B · R slots to their block's prompt and their own tokens: [H, N, D].

    Scores and the sums of values are computed in float32, as fused attention does.

    Args:
        query_HND: one query per slot.
        prompts_2BKSD: keys and values of the prompts.
        own_2NKTD: keys and values of each slot's own tokens.
        seen_BS: True for the columns of a prompt that are tokens.
        seen_T: True for the columns of own tokens that are filled.
        scale: of the scores.
    """
    (H, N, D), (B, K) = query_HND.shape, prompts_2BKSD.shape[1:3]
    R, G = N // B, H // K
    query_KGBRD = query_HND.reshape(K, G, B, R, D)
    for_prompt = query_KGBRD.permute(2, 0, 3, 1, 4).reshape(B * K, R * G, D)
    for_own = query_KGBRD.permute(2, 3, 0, 1, 4).reshape(N * K, G, D)
    (prompt_keys, prompt_values), (own_keys, own_values) = (
        each.flatten(1, 2) for each in (prompts_2BKSD, own_2NKTD)
    )
    with torch.autocast(query_HND.device.type, enabled=False):
        to_prompt = float32_product(for_prompt, prompt_keys.mT).view(B, K, R, G, -1)
        to_own = float32_product(for_own, own_keys.mT).view(B, R, K, G, -1).transpose(1, 2)
        score = torch.cat(
            [
                to_prompt.masked_fill(~seen_BS[:, None, None, None], -torch.inf),
                to_own.masked_fill(~seen_T, -torch.inf),
            ],
            dim=-1,
        )
        share = (score * scale).softmax(-1).to(query_HND.dtype)
        S = seen_BS.shape[1]
        from_prompt = float32_product(share[..., :S].reshape(B * K, R * G, S), prompt_values).view(
            B, K, R, G, D
        )
        own_share = share[..., S:].transpose(1, 2).reshape(N * K, G, -1)
        from_own = float32_product(own_share, own_values).view(B, R, K, G, D).transpose(1, 2)
        out_BKRGD = (from_prompt + from_own).to(query_HND.dtype)
    return out_BKRGD.permute(1, 3, 0, 2, 4).reshape(H, N, D)
