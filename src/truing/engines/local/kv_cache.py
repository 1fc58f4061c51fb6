"""Keys and values of rows' own tokens: a table with room to grow, of which each row fills its length."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from truing.models.forward.tree_attention import FLASH, PartialAttention

BLOCK_TOKENS = 64
"""Tables grow by so many tokens at a time."""


@dataclass(frozen=True, eq=False)
class RowCache:
    """One row's own tokens: by layer their keys and values, [2, key heads, length, D]."""

    length: int = 0
    layers: dict[int, Tensor] = field(default_factory=dict)


class KVCache:
    """N rows; by layer a table of their keys and values, [2, N, key heads, room, D]."""

    def __init__(self, tails: Sequence[RowCache]) -> None:
        self.lengths = [tail.length for tail in tails]
        self._next: _NextToken | None = None
        self.tables: dict[int, Tensor] = {}
        filled = next((tail for tail in tails if tail.length), RowCache())
        for layer, held in filled.layers.items():
            table = held.new_zeros(2, len(tails), held.shape[1], _room(max(self.lengths)), held.shape[3])
            for i, tail in enumerate(tails):
                if tail.length:
                    table[:, i, :, : tail.length] = tail.layers[layer]
            self.tables[layer] = table

    def row(self, i: int) -> RowCache:
        """A copy of one row, which does not keep the whole."""
        length = self.lengths[i]
        return RowCache(
            length, {layer: table[:, i, :, :length].clone() for layer, table in self.tables.items()}
        )

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only."""
        self.lengths, self._next = [self.lengths[i] for i in rows], None
        room = _room(max(self.lengths, default=0))
        index = torch.tensor(rows, dtype=torch.long)
        self.tables = {layer: table[:, index, :, :room] for layer, table in self.tables.items()}

    def advance(self, counts: Sequence[int]) -> None:
        """All layers have the new tokens now."""
        self.lengths = [length + n for length, n in zip(self.lengths, counts, strict=True)]
        self._next = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, counts: Sequence[int]
    ) -> PartialAttention:
        """Let each row's new queries, ``counts`` of them, meet what it holds and themselves; hold them."""
        table = self._table(layer, key, counts)
        if max(counts) == 1:
            self._next = self._next or _NextToken.after(self.lengths)
            rows, place, beyond = self._next
            table[:, rows, :, place] = torch.stack([key[0], value[0]]).permute(2, 0, 1, 3)
            return PartialAttention(query, *_attend_one_each(query, *table, beyond, scale))
        met, (keys, values), start = PartialAttention.empty(query), table, 0
        for i, (held, n) in enumerate(zip(self.lengths, counts, strict=True)):
            new = slice(start, start + n)
            met.attend_causal(new, key[:, :, new], value[:, :, new], scale)
            if held:
                met.attend(new, keys[i : i + 1, :, :held], values[i : i + 1, :, :held], scale)
            keys[i, :, held : held + n], values[i, :, held : held + n] = key[0, :, new], value[0, :, new]
            start += n
        return met

    def _table(self, layer: int, like: Tensor, counts: Sequence[int]) -> Tensor:
        """The table of a layer, with room for the new tokens."""
        room = _room(max(length + n for length, n in zip(self.lengths, counts, strict=True)))
        table = self.tables.get(layer)
        if table is None or table.shape[3] < room:
            larger = like.new_zeros(2, len(counts), like.shape[1], room, like.shape[3])
            if table is not None:
                larger[:, :, :, : table.shape[3]] = table
            self.tables[layer] = table = larger
        return table


def _room(length: int) -> int:
    """The next multiple of ROOM."""
    return -(-length // BLOCK_TOKENS) * BLOCK_TOKENS


class _NextToken(NamedTuple):
    """Where each of N rows holds its next token, and what it then meets; the same in every layer."""

    rows_N: Tensor
    place_N: Tensor
    beyond: Tensor  # [N, 1, 1, longest], to add to scores: −∞ beyond a row's own

    @classmethod
    def after(cls, lengths: Sequence[int]) -> "_NextToken":
        """With rows of these lengths."""
        place_N = torch.tensor(lengths)
        beyond = torch.arange(max(lengths) + 1) > place_N[:, None]
        scores = torch.zeros(beyond.shape).masked_fill(beyond, -torch.inf)
        return cls(torch.arange(len(lengths)), place_N, scores[:, None, None])


def _attend_one_each(
    query: Tensor, keys: Tensor, values: Tensor, beyond: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """One query of each row meets the keys of its table, less those that are ``beyond``.

    query [1, heads, N, D] → what is found, like it, and the log of the sum of exponentials [1, heads, N].
    """
    met = slice(beyond.shape[-1])
    found, lse = FLASH(
        query[0].transpose(0, 1)[:, :, None],
        *(keys[:, :, met], values[:, :, met]),
        *(0.0, False),
        attn_mask=beyond.to(query.dtype),
        scale=scale,
    )
    return found[:, :, 0].transpose(0, 1)[None], lse[:, :, 0].t()[None]
