"""The comparison of sampled and trained ids: the number of equal ones, and the first difference."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from truing.types.token_facts import IdDifference, Ids


class IdPair(NamedTuple):
    """Sampled and trained ids of one stretch of a sample."""

    sample_id: str
    start: int  # of the stretch within its sample
    drawn: Sequence[int]
    trained: Sequence[int]


def compare_ids(pairs: Iterable[IdPair]) -> Ids:
    """Return the fact ``ids``: equal positions, all positions, samples that differ, and the first difference.

    A position on one side alone counts as unequal; the other side's id is then None.

    >>> compare_ids([IdPair("a", 3, [5, 6, 7], [5, 9])])["first"]
    {'sample_id': 'a', 'position': 4, 'drawn': 6, 'trained': 9, 'drawn_length': 3, 'trained_length': 2}
    """
    equal, total, rows = 0, 0, set[str]()
    first: IdDifference | None = None
    for pair in pairs:
        same = [a == b for a, b in zip(pair.drawn, pair.trained, strict=False)]
        longest = max(len(pair.drawn), len(pair.trained))
        equal, total = equal + sum(same), total + longest
        if sum(same) == longest:
            continue
        rows.add(pair.sample_id)
        at = same.index(False) if False in same else len(same)
        first = first or {
            "sample_id": pair.sample_id,
            "position": pair.start + at,
            "drawn": _at(pair.drawn, at),
            "trained": _at(pair.trained, at),
            "drawn_length": len(pair.drawn),
            "trained_length": len(pair.trained),
        }
    return {"equal": equal, "total": total, "rows": len(rows), "first": first}


def alignment_metric(ids: Ids) -> dict[str, float]:
    """Return the metric ``alignment`` of a fact ``ids``; empty without compared positions."""
    return {"alignment": ids["equal"] / ids["total"]} if ids["total"] else {}


def _at(ids: Sequence[int], index: int) -> int | None:
    return int(ids[index]) if index < len(ids) else None
