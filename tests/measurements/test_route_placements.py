"""Where recorded routes fit: at their own token, a token earlier or later, or in another row."""

from dataclasses import replace

import pytest
import torch
from samples import sample

from truing.doctor.oracle.expert_routes import Selection
from truing.measurements.expert_routes import placements
from truing.types.token import NO_ROUTE

LENGTH, CHOSEN = 12, 2


def taken(seed):
    """What one layer selected for the tokens of a row but the last: random sets of eight experts."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.rand(LENGTH - 1, 8, generator=generator).topk(CHOSEN).indices
    return {0: Selection(torch.zeros(LENGTH - 1, 8), torch.zeros(LENGTH - 1, CHOSEN), ids)}


def row_with(selections, shift=0):
    """A row of four context and eight sampled tokens, recorded ``shift`` tokens late."""
    routes = torch.full((LENGTH, 1, CHOSEN), NO_ROUTE, dtype=torch.int16)
    routes[:-1, 0] = selections[0].ids_TK
    return replace(sample([1, 2, 3, 4], [5] * 8), routes=routes.roll(shift, 0))


def placed(records):
    rows = [row_with(taken(seed), shift) for seed, shift in records]
    return placements(rows, [taken(0), taken(1)])


def test_a_right_record_differs_nowhere_and_counts_sampled_tokens():
    found = placed([(0, 0), (1, 0)])
    assert found["sets"] == 2 * 7  # the last token of eight has none
    assert found["here"] == 0
    assert min(found["before"], found["after"], found["other"]) > 0.5


@pytest.mark.parametrize(
    ("records", "place"),
    [([(0, 1), (1, 1)], "before"), ([(0, -1), (1, -1)], "after"), ([(1, 0), (0, 0)], "other")],
)
def test_a_misplaced_record_fits_at_one_place(records, place):
    found = placed(records)
    assert found["here"] > 0.5
    assert found[place] == 0
    assert all(found[name] > 0.5 for name in {"before", "after", "other"} - {place})


def test_the_order_of_a_set_is_no_difference():
    row = row_with(taken(0))
    turned = replace(row, routes=row.routes.flip(2))
    assert placements([turned], [taken(0)])["here"] == 0


def test_one_row_has_no_other():
    assert "other" not in placements([row_with(taken(0))], [taken(0)])
