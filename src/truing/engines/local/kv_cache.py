"""The KV cache of rows: per layer one table with room to grow, of which each row fills its length."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from truing.models.forward.tree_attention import FLASH, PartialAttention, summing_dtype

BLOCK_TOKENS = 64
"""Tokens by which tables grow at a time."""


@dataclass(frozen=True, eq=False)
class RowCache:
    """The keys and values of one row's own tokens: by layer, [2, key heads, length, D]."""

    length: int = 0
    layers: dict[int, Tensor] = field(default_factory=dict)


class KVCache:
    """The keys and values of N rows: by layer, [2, N, key heads, capacity, D]."""

    def __init__(self, rows: Sequence[RowCache]) -> None:
        self.lengths = [row.length for row in rows]
        self._next: _NextToken | None = None
        self.tables: dict[int, Tensor] = {}
        nonempty = next((row for row in rows if row.length), RowCache())
        for layer, tensor in nonempty.layers.items():
            table = tensor.new_zeros(
                2, len(rows), tensor.shape[1], _capacity(max(self.lengths)), tensor.shape[3]
            )
            for i, row in enumerate(rows):
                if row.length:
                    table[:, i, :, : row.length] = row.layers[layer]
            self.tables[layer] = table

    def row(self, i: int) -> RowCache:
        """Return a copy of one row; it does not keep the table alive."""
        length = self.lengths[i]
        return RowCache(
            length, {layer: table[:, i, :, :length].clone() for layer, table in self.tables.items()}
        )

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows only."""
        self.lengths, self._next = [self.lengths[i] for i in rows], None
        capacity = _capacity(max(self.lengths, default=0))
        index = torch.tensor(rows, dtype=torch.long)
        self.tables = {layer: table[:, index, :, :capacity] for layer, table in self.tables.items()}

    def advance(self, counts: Sequence[int]) -> None:
        """Count the new tokens, after every layer has stored them."""
        self.lengths = [length + n for length, n in zip(self.lengths, counts, strict=True)]
        self._next = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, counts: Sequence[int]
    ) -> PartialAttention:
        """Store each row's ``counts`` new tokens; let them attend to its cached tokens and to themselves."""
        table = self._table(layer, key, counts)
        if max(counts) == 1:
            self._next = self._next or _NextToken.at_lengths(self.lengths)
            rows, place, beyond = self._next
            table[:, rows, :, place] = torch.stack([key[0], value[0]]).permute(2, 0, 1, 3)
            keys, values = table
            out, lse = _attend_one_each(query, keys, values, beyond, scale)
            return PartialAttention(query, out.to(summing_dtype(out)), lse)
        partial, (keys, values), start = PartialAttention.empty(query), table, 0
        for i, (length, n) in enumerate(zip(self.lengths, counts, strict=True)):
            new = slice(start, start + n)
            partial.attend_causal(new, key[:, :, new], value[:, :, new], scale)
            if length:
                partial.attend(new, keys[i : i + 1, :, :length], values[i : i + 1, :, :length], scale)
            keys[i, :, length : length + n], values[i, :, length : length + n] = (
                key[0, :, new],
                value[0, :, new],
            )
            start += n
        return partial

    def _table(self, layer: int, like: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the table of a layer, with room for the new tokens."""
        capacity = _capacity(max(length + n for length, n in zip(self.lengths, counts, strict=True)))
        table = self.tables.get(layer)
        if table is None or table.shape[3] < capacity:
            larger = like.new_zeros(2, len(counts), like.shape[1], capacity, like.shape[3])
            if table is not None:
                larger[:, :, :, : table.shape[3]] = table
            self.tables[layer] = table = larger
        return table


def _capacity(length: int) -> int:
    """Return the next multiple of BLOCK_TOKENS."""
    return -(-length // BLOCK_TOKENS) * BLOCK_TOKENS


class _NextToken(NamedTuple):
    """Where each of N rows stores its next token, and which columns it attends to; equal for all layers."""

    rows_N: Tensor
    place_N: Tensor
    beyond: Tensor  # [N, 1, 1, longest], added to scores: −∞ beyond a row's own tokens

    @classmethod
    def at_lengths(cls, lengths: Sequence[int]) -> "_NextToken":
        """Return it for rows of these lengths."""
        place_N = torch.tensor(lengths)
        beyond = torch.arange(max(lengths) + 1) > place_N[:, None]
        scores = torch.zeros(beyond.shape).masked_fill(beyond, -torch.inf)
        return cls(torch.arange(len(lengths)), place_N, scores[:, None, None])


def _attend_one_each(
    query: Tensor, keys: Tensor, values: Tensor, beyond: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Let one query per row attend to the keys of its table, without those that are ``beyond``.

    query [1, heads, N, D] → the output, like it, and the log of the sum of exponentials [1, heads, N].
    """
    key_slice = slice(beyond.shape[-1])
    out, lse = FLASH(
        query[0].transpose(0, 1)[:, :, None],
        *(keys[:, :, key_slice], values[:, :, key_slice]),
        *(0.0, False),
        attn_mask=beyond.to(query.dtype),
        scale=scale,
    )
    return out[:, :, 0].transpose(0, 1)[None], lse[:, :, 0].t()[None]
