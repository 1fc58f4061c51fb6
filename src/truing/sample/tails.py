"""Keys and values of rows' own tokens: a table with room to grow, of which each row fills its length."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from truing.models.tree_attention import Pieces

ROOM = 64
"""Tables grow by so many tokens at a time."""


@dataclass(frozen=True, eq=False)
class Tail:
    """One row's own tokens: by layer their keys and values, [2, key heads, length, D]."""

    length: int = 0
    layers: dict[int, Tensor] = field(default_factory=dict)


class Tails:
    """N rows; by layer a table of their keys and values, [2, N, key heads, room, D]."""

    def __init__(self, tails: Sequence[Tail]) -> None:
        self.lengths = [tail.length for tail in tails]
        self.tables: dict[int, Tensor] = {}
        filled = next((tail for tail in tails if tail.length), Tail())
        for layer, held in filled.layers.items():
            table = held.new_zeros(2, len(tails), held.shape[1], _room(max(self.lengths)), held.shape[3])
            for i, tail in enumerate(tails):
                if tail.length:
                    table[:, i, :, : tail.length] = tail.layers[layer]
            self.tables[layer] = table

    def tail(self, i: int) -> Tail:
        """A copy of one row, which does not keep the whole."""
        length = self.lengths[i]
        return Tail(length, {layer: table[:, i, :, :length].clone() for layer, table in self.tables.items()})

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only."""
        self.lengths = [self.lengths[i] for i in rows]
        room = _room(max(self.lengths, default=0))
        index = torch.tensor(rows, dtype=torch.long)
        self.tables = {layer: table[:, index, :, :room] for layer, table in self.tables.items()}

    def advance(self, counts: Sequence[int]) -> None:
        """All layers have the new tokens now."""
        self.lengths = [length + n for length, n in zip(self.lengths, counts, strict=True)]

    def meet(
        self, layer: int, met: Pieces, key: Tensor, value: Tensor, scale: float, counts: Sequence[int]
    ) -> None:
        """Let each row's new queries, ``counts`` of them, meet what it holds and themselves; hold them."""
        keys, values = self._table(layer, key, counts)
        if max(counts) == 1:
            rows, lengths = torch.arange(len(counts)), torch.tensor(self.lengths)
            keys[rows, :, lengths] = key[0].transpose(0, 1)
            values[rows, :, lengths] = value[0].transpose(0, 1)
            met.begin(slice(None), *_one_each(met.query, keys, values, scale, lengths + 1))
            return
        start = 0
        for i, (held, n) in enumerate(zip(self.lengths, counts, strict=True)):
            new = slice(start, start + n)
            met.meet_own(new, key[:, :, new], value[:, :, new], scale)
            if held:
                met.meet(new, keys[i : i + 1, :, :held], values[i : i + 1, :, :held], scale)
            keys[i, :, held : held + n], values[i, :, held : held + n] = key[0, :, new], value[0, :, new]
            start += n

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
    return -(-length // ROOM) * ROOM


def _one_each(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, lengths_N: Tensor
) -> tuple[Tensor, Tensor]:
    """One query of each row meets the first ``lengths_N`` keys of its table; heads with one key together.

    query [1, heads, N, D] → what is found, like it, and the log of the sum of exponentials [1, heads, N].
    """
    rows, key_heads, _, width = keys.shape
    longest = int(lengths_N.max())
    keys, values = keys[:, :, :longest], values[:, :, :longest]
    query = query[0].transpose(0, 1).reshape(rows, key_heads, -1, width)
    scores = query @ keys.transpose(2, 3) * scale  # [N, key heads, heads each, longest]
    if int(lengths_N.min()) < longest:
        beyond = torch.arange(longest) >= lengths_N[:, None]
        scores = scores.masked_fill(beyond[:, None, None], -torch.inf)
    lse = scores.logsumexp(-1)
    found = (scores - lse[..., None]).exp() @ values
    return found.reshape(rows, -1, width).transpose(0, 1)[None], lse.reshape(rows, -1).t()[None]
