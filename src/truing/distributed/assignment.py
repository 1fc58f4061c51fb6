"""Which rank computes which rows: a function of the rows alone, so that every rank knows all shares."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def assign(
    rows: Sequence[T], ranks: int, unit: Callable[[T], object], cost: Callable[[Sequence[T]], int]
) -> list[list[T]]:
    """Return the rows of each rank: each row once, rows of one unit together, costs balanced.

    Units go, the costliest first, to the rank with the least cost so far
    (https://en.wikipedia.org/wiki/Longest-processing-time-first_scheduling). A rank's rows keep their order.

    Args:
        rows: in any order.
        ranks: how many there are.
        unit: what must stay together, such as a group, whose rows share a prompt.
        cost: of the rows of a unit, in tokens to compute.
    """
    if ranks == 1:
        return [list(rows)]
    members: dict[object, list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault(unit(row), []).append(index)
    costs = {key: cost([rows[index] for index in indices]) for key, indices in members.items()}
    totals, shares = [0] * ranks, [list[int]() for _ in range(ranks)]
    for key in sorted(members, key=lambda key: (-costs[key], members[key][0])):
        rank = min(range(ranks), key=lambda rank: (totals[rank], rank))
        totals[rank] += costs[key]
        shares[rank] += members[key]
    return [[rows[index] for index in sorted(share)] for share in shares]
