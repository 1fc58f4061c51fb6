"""Keys and values of rows' own tokens: a table with room to grow, of which each row fills its length."""

from collections.abc import Sequence

import torch
from torch import Tensor

from truing.models.tree_attention import Pieces

ROOM = 64
"""Tables grow by so many tokens at a time."""


class Tails:
    """N rows; by layer a table of keys and one of values, each [N, key heads, room, D]."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    @classmethod
    def of(cls, rows: Sequence["Tails"]) -> "Tails":
        """One table of several single rows."""
        joined = cls([row.lengths[0] for row in rows])
        filled = next((row for row in rows if row.keys), joined)
        room = _room(max(joined.lengths, default=0))
        for held in ("keys", "values"):
            for layer, like in getattr(filled, held).items():
                table = like.new_zeros(len(rows), like.shape[1], room, like.shape[3])
                for i, row in enumerate(rows):
                    if row.lengths[0]:
                        length = row.lengths[0]
                        table[i, :, :length] = getattr(row, held)[layer][0, :, :length]
                getattr(joined, held)[layer] = table
        return joined

    def chosen(self, rows: Sequence[int]) -> "Tails":
        """These rows alone."""
        part = Tails([self.lengths[i] for i in rows])
        room = _room(max(part.lengths, default=0))
        index = torch.tensor(rows, dtype=torch.long)
        part.keys = {layer: table[:, :, :room][index] for layer, table in self.keys.items()}
        part.values = {layer: table[:, :, :room][index] for layer, table in self.values.items()}
        return part

    def advance(self, counts: Sequence[int]) -> None:
        """All layers have the new tokens now."""
        self.lengths = [length + n for length, n in zip(self.lengths, counts, strict=True)]

    def meet(
        self, layer: int, met: Pieces, key: Tensor, value: Tensor, scale: float, counts: Sequence[int]
    ) -> None:
        """Let each row's new queries, ``counts`` of them, meet what it holds and themselves; hold them."""
        keys = self._table(self.keys, layer, key, counts)
        values = self._table(self.values, layer, value, counts)
        if max(counts) == 1:
            rows, lengths = torch.arange(len(counts)), torch.tensor(self.lengths)
            keys[rows, :, lengths] = key[0].transpose(0, 1)
            values[rows, :, lengths] = value[0].transpose(0, 1)
            _one_each(met, keys, values, scale, lengths + 1)
            return
        start = 0
        for i, (held, n) in enumerate(zip(self.lengths, counts, strict=True)):
            new = slice(start, start + n)
            if held:
                met.meet(new, keys[i : i + 1, :, :held], values[i : i + 1, :, :held], scale, causal=False)
            met.meet(new, key[:, :, new], value[:, :, new], scale, causal=True)
            keys[i, :, held : held + n], values[i, :, held : held + n] = key[0, :, new], value[0, :, new]
            start += n

    def _table(self, held: dict[int, Tensor], layer: int, like: Tensor, counts: Sequence[int]) -> Tensor:
        """The table of a layer, with room for the new tokens."""
        room = _room(max(length + n for length, n in zip(self.lengths, counts, strict=True)))
        table = held.get(layer)
        if table is None or table.shape[2] < room:
            larger = like.new_zeros(len(counts), like.shape[1], room, like.shape[3])
            if table is not None:
                larger[:, :, : table.shape[2]] = table
            held[layer] = table = larger
        return table


def _room(length: int) -> int:
    """The next multiple of ROOM."""
    return -(-length // ROOM) * ROOM


def _one_each(met: Pieces, keys: Tensor, values: Tensor, scale: float, lengths_N: Tensor) -> None:
    """One query of each row meets the first ``lengths_N`` keys of its table; heads with one key together."""
    rows, key_heads, _, width = keys.shape
    longest = int(lengths_N.max())
    keys, values = keys[:, :, :longest], values[:, :, :longest]
    query = met.query[0].transpose(0, 1).reshape(rows, key_heads, -1, width)
    scores = query @ keys.transpose(2, 3) * scale  # [N, key heads, heads each, longest]
    if int(lengths_N.min()) < longest:
        beyond = torch.arange(longest) >= lengths_N[:, None]
        scores = scores.masked_fill(beyond[:, None, None], -torch.inf)
    lse = scores.logsumexp(-1)
    found = (scores - lse[..., None]).exp() @ values
    by_head = [each.reshape(rows, -1, n).transpose(0, 1)[None] for each, n in ((found, width), (lse, 1))]
    met.add(slice(None), by_head[0], by_head[1][..., 0])
