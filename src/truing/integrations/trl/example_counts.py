"""Which rows two ranks have, although the dataset has them once."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple


class Example(NamedTuple):
    """The example of a row."""

    unit: str  # rows of one unit have one example: a group, or the row itself
    scope: int  # an example may occur again in another scope, such as the next generation
    digest: str


def digest_of(example: Any) -> str:
    """Return a digest of a value, such as that of a column, or ids."""
    return hashlib.sha256(repr(example).encode()).hexdigest()[:16]


class ExampleCounts:
    """How often a dataset has an example, by the digest of one column; counted when first asked."""

    def __init__(self, dataset: Any, column: str) -> None:
        self.dataset, self.column = dataset, column
        self.counts: Counter[str] | None = None

    @property
    def known(self) -> bool:
        """Whether the dataset can be counted."""
        columns = getattr(self.dataset, "column_names", None)
        return isinstance(self.dataset, Sized) and columns is not None and self.column in columns

    @property
    def size(self) -> int | None:
        """The rows of the dataset; None if it has no length."""
        return len(self.dataset) if isinstance(self.dataset, Sized) else None

    def __call__(self, digest: str) -> float:
        """Return how often the dataset has an example; inf if that is unknown."""
        if self.counts is None:
            self.counts = Counter(map(digest_of, self._examples()))
        return self.counts[digest] or math.inf

    def copies(self, digests: Iterable[str]) -> int | None:
        """Return how many rows of the dataset are one of these examples; None if that is unknown."""
        total = sum(map(self, set(digests)))
        return None if math.isinf(total) else int(total)

    def _examples(self) -> Iterator[Any]:
        if self.known:
            for row in self.dataset.select_columns([self.column]):
                yield row[self.column]


def shared_examples(
    by_rank: Sequence[Mapping[str, Example]], copies: Callable[[str], float]
) -> list[list[Any]]:
    """Return rows whose example several ranks have, in more units than the dataset; each with those ranks.

    Args:
        by_rank: the examples of the rows of each rank, by the rows' names.
        copies: returns how often the dataset has an example.
    """
    units: dict[tuple[int, str], dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for rank, examples in enumerate(by_rank):
        for name, (unit, scope, digest) in examples.items():
            units[scope, digest][unit].append((name, rank))
    shared: list[list[Any]] = []
    for (_, digest), rows_of_unit in units.items():
        ranks = sorted({rank for rows in rows_of_unit.values() for _, rank in rows})
        if len(ranks) > 1 and len(rows_of_unit) > 1 and len(rows_of_unit) > copies(digest):
            first = next(iter(rows_of_unit.values()))
            shared += [[name, ranks] for name, _ in first]
    return shared
