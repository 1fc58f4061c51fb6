"""Samples as a tree of tokens: shared prefixes are computed once.

    samples   a b c d x        tokens     a b c d e f     depth first, without each sample's last token,
              a b e f y        positions  0 1 2 3 2 3     which predicts nothing
              a b c z          ends       6 6 4 4 6 6     query q sees key k where k ≤ q < ends[k]

A token has its position within its sample and sees the same tokens as in that sample alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Segment(NamedTuple):
    """A run without a fork or an end: its tokens are [start, end), its continuations [end, last)."""

    start: int
    end: int
    last: int


@dataclass(frozen=True, eq=False)
class TokenTree:
    """L distinct tokens in depth-first order, and the indices of each sequence's tokens."""

    keys_L: Tensor  # of what the tree was built: ids, or keys of ids and routes (``token_keys.py``)
    position_ids_L: Tensor
    ends_L: Tensor  # index after the last token that continues this one
    token_indices: tuple[Tensor, ...]  # [T] of each sequence: the indices of its tokens

    def segments(self) -> list[Segment]:
        """Return the tree's segments, parents before children."""
        follows = torch.zeros(len(self.ends_L), dtype=torch.bool)
        follows[:-1] = (self.position_ids_L.diff() == 1) & (self.ends_L.diff() == 0)
        for place in self.token_indices:
            follows[place[-1:]] = False
        ends = [k + 1 for k in (~follows).nonzero()[:, 0].tolist()]
        bounds = zip([0, *ends], ends, strict=False)
        return [Segment(start, end, int(self.ends_L[start])) for start, end in bounds]

    def paths(self) -> list[list[Segment]]:
        """Return the segments of each sequence."""
        segments, lasts = (
            self.segments(),
            [int(place[-1]) if len(place) else -1 for place in self.token_indices],
        )
        return [[each for each in segments if each.start <= last < each.last] for last in lasts]


class Partition(NamedTuple):
    """Sequences to compute together, and the tokens that takes."""

    members: list[int]
    tokens: int


def build_tree(sequences: Sequence[Tensor]) -> TokenTree:
    """Return the tree of sequences of ids or keys, each [T] with T ≥ 1."""
    indices: dict[int, Tensor] = {}
    ids, positions, size = [], [], 0
    ends = torch.zeros(sum(map(len, sequences)), dtype=torch.long)
    path = torch.empty(0, dtype=torch.long)
    for b, shared in _in_order(sequences):
        new = sequences[b][shared:]
        path = torch.cat([path[:shared], torch.arange(size, size + len(new))])
        size += len(new)
        ends[path] = size
        ids.append(new)
        positions.append(torch.arange(shared, len(path)))
        indices[b] = path
    return TokenTree(
        torch.cat(ids), torch.cat(positions), ends[:size], tuple(indices[b] for b in range(len(sequences)))
    )


def partition(sequences: Sequence[Tensor], max_tokens: int) -> list[Partition]:
    """Return the sequences in parts whose trees have at most ``max_tokens`` tokens, or one sequence."""
    parts: list[Partition] = []
    for b, shared in _in_order(sequences):
        grown = len(sequences[b]) - shared
        if parts and parts[-1].tokens + grown <= max_tokens:
            parts[-1] = Partition([*parts[-1].members, b], parts[-1].tokens + grown)
        else:
            parts.append(Partition([b], len(sequences[b])))
    return parts


def _in_order(sequences: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Return the sequences sorted by ids, each with the length of its common prefix with the one before."""
    lists = [sequence.tolist() for sequence in sequences]
    order = sorted(range(len(lists)), key=lists.__getitem__)
    before = [None, *order]
    return [
        (b, 0 if a is None else _common_prefix_length(sequences[a], sequences[b]))
        for a, b in zip(before, order, strict=False)
    ]


def _common_prefix_length(one: Tensor, other: Tensor) -> int:
    """Return the length of the common prefix of two sequences."""
    length = min(len(one), len(other))
    differ = (one[:length] != other[:length]).nonzero()
    return int(differ[0]) if len(differ) else length
