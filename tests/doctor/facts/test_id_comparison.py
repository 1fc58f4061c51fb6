"""Drawn ids beside trained ids: every kind of difference is counted, and the first is named."""

import doctest

import pytest

from truing.doctor.facts import id_comparison
from truing.doctor.facts.id_comparison import IdPair, alignment_metric, compare_ids
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES

SAME = IdPair("a", 2, [1, 2, 3], [1, 2, 3])


def test_equal_ids_have_no_first_difference():
    assert compare_ids([SAME, SAME]) == {"equal": 6, "total": 6, "rows": 0, "first": None}
    assert alignment_metric(compare_ids([SAME])) == {"alignment": 1.0}
    assert alignment_metric(compare_ids([])) == {}


@pytest.mark.parametrize(
    ("trained", "equal", "position", "had", "has"),
    [
        ([1, 9, 3], 2, 3, 2, 9),  # another id
        ([1, 2], 2, 4, 3, None),  # the last was lost
        ([1, 2, 3, 4], 3, 5, None, 4),  # one was added: a position more
        ([0, 1, 2, 3], 0, 2, 1, 0),  # all moved by one
        ([], 0, 2, 1, None),
    ],
)
def test_the_first_difference_has_both_ids_and_both_lengths(trained, equal, position, had, has):
    ids = compare_ids([SAME, IdPair("b", 2, [1, 2, 3], trained), IdPair("c", 0, [7], [8])])
    assert (ids["equal"], ids["rows"]) == (3 + equal, 2)
    assert ids["total"] == 3 + max(3, len(trained)) + 1
    expected = {"sample_id": "b", "position": position, "drawn": had, "trained": has}
    assert ids["first"] == expected | {"drawn_length": 3, "trained_length": len(trained)}


def test_the_example_of_the_docstring():
    assert doctest.testmod(id_comparison).failed == 0


def test_the_finding_names_row_token_both_ids_and_both_lengths():
    rule = RULES["TOK001"]
    (found,) = examine(rule.example(), [rule])
    claim = found.claim
    assert (claim.row, claim.start, claim.end) == (0, 5, 6)
    assert "in 1 sample; the first is token 5" in claim.what
    assert claim.got == "id 40, and 3 ids in all"
    assert claim.expected == "id 31, and 4 ids in all, as sampled"
