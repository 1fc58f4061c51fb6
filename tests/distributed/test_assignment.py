"""Which rank computes which rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.distributed.assignment import assign

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=30)


def shares(rows, ranks):
    """Assign numbered rows (unit, cost)."""
    numbered = list(enumerate(rows))
    return assign(
        numbered, ranks, unit=lambda row: row[1][0], cost=lambda unit: sum(row[1][1] for row in unit)
    )


@given(ROWS, st.integers(1, 5))
def test_each_row_is_computed_once_and_no_unit_is_torn_apart(rows, ranks):
    result = shares(rows, ranks)
    assert len(result) == ranks
    assert sorted(index for share in result for index, _ in share) == list(range(len(rows)))
    owners = [{row[0] for _, row in share} for share in result]
    assert sum(map(len, owners)) == len({row[0] for row in rows})
    assert all(share == sorted(share) for share in result)


@given(ROWS)
def test_one_rank_computes_all_rows_in_their_order(rows):
    assert shares(rows, 1) == [list(enumerate(rows))]


@pytest.mark.parametrize(
    ("costs", "totals"), [([5, 4, 3, 3, 3], [8, 10]), ([8, 1, 1], [8, 2]), ([3], [3, 0]), ([], [0, 0])]
)
def test_costs_are_balanced(costs, totals):
    result = shares(list(enumerate(costs)), 2)
    assert [sum(cost for _, (_, cost) in share) for share in result] == totals
