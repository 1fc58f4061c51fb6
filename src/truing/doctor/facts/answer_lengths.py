"""Lengths of answers and demonstrations, by task family."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import Tensor

from truing.types.token import Origin
from truing.utils.format import with_count

ORIGIN_OF_KIND = {"answers": Origin.SAMPLED, "demonstrations": Origin.DEMO}


class Lengths(NamedTuple):
    """Tokens per sample."""

    rows: int
    shortest: int
    longest: int
    mean: float

    def __str__(self) -> str:
        most = with_count(self.longest, "token")
        return (
            most
            if self.shortest == self.longest
            else f"{self.shortest} to {most}, {self.mean:.1f} on average"
        )


ByFamily = Mapping[str, Mapping[str, Lengths]]
"""Family → "answers" or "demonstrations" → lengths; a kind without samples is absent."""


def answer_lengths(rows: Iterable[tuple[str, Tensor]]) -> ByFamily:
    """Return lengths of the SAMPLED and the DEMO tokens of samples, each a family and its origins [T]."""
    lengths: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for family, origin_T in rows:
        for kind, origin in ORIGIN_OF_KIND.items():
            if length := int((origin_T == origin).sum()):
                lengths[family][kind].append(length)
    return {family: {kind: _of(each) for kind, each in kinds.items()} for family, kinds in lengths.items()}


def _of(lengths: list[int]) -> Lengths:
    return Lengths(len(lengths), min(lengths), max(lengths), sum(lengths) / len(lengths))
