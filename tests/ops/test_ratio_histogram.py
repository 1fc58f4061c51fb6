"""Where the edges of a histogram of ratios are, by hand, and on which side of one a ratio counts."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.losses import OBJECTIVES
from truing.ops.ratio_histogram import ratio_counts, ratio_edges
from truing.ops.ratios import clip_mask

INF = math.inf


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_edges_are_quarters_of_the_band_in_log_space():
    below, above = ratio_edges(0.2, 0.28, INF)
    assert len(below) == len(above) == 20
    assert below[-4] == 1 - 0.2
    assert above[3] == 1 + 0.28
    for edges, end in ((below[::-1], 0.8), (above, 1.28)):
        assert [math.log(edge) for edge in edges] == pytest.approx(
            [j / 4 * math.log(end) for j in range(1, 21)], abs=1e-6
        )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_objective_has_its_marks_among_edges_that_ascend(name):
    objective = OBJECTIVES[name]
    below, above = ratio_edges(objective.clip_low, objective.clip_high, objective.max_ratio)
    edges = [*below, *above]
    assert all(one < other for one, other in pairwise(edges))
    assert below[-1] < 1 < above[0]
    marks = [1 - objective.clip_low, 1 + objective.clip_high, objective.max_ratio]
    assert {mark for mark in marks if math.isfinite(mark)} <= set(edges)


def test_a_side_without_a_clip_has_edges_all_the_same():
    assert ratio_edges(INF, INF, INF) == ratio_edges(0.2, 0.2, INF)
    assert ratio_edges(1.5, 0.2, INF) == ratio_edges(0.2, 0.2, INF)  # a ratio is never below 0


def test_counts_by_hand():
    """Edges ½, ¾ | 2, 4: what is an edge counts on the side of 1."""
    counts = ratio_counts(f64(0.1, 0.5, 0.6, 0.75, 1.0, 1.0, 2.0, 2.1, 4.0, 9.0), [0.5, 0.75], [2.0, 4.0])
    assert counts.tolist() == [1, 2, 4, 2, 1]


def test_nothing_is_no_count_and_infinity_is_the_last():
    assert ratio_counts(f64(), [0.5], [2.0]).tolist() == [0, 0, 0]
    assert ratio_counts(f64(0.0, INF), [0.5], [2.0]).tolist() == [1, 0, 1]


def test_ids_are_no_ratios():
    with pytest.raises(InvalidValueError):
        ratio_counts(torch.tensor([1, 2]), [0.5], [2.0])


@given(st.lists(st.floats(0, 5), max_size=40), st.sampled_from(["grpo", "dapo", "gspo"]))
def test_beyond_the_ends_of_the_band_lies_what_the_clip_takes(ratios, name):
    low, high = OBJECTIVES[name].clip_low, OBJECTIVES[name].clip_high
    ratio_N = f64(*ratios, 1 - low, 1 + high)
    below, above = ratio_edges(low, high, INF)
    counts, edges = ratio_counts(ratio_N, below, above), [*below, *above]
    assert int(counts.sum()) == len(ratio_N)
    taken = {
        sign: int(clip_mask(ratio_N, sign * torch.ones_like(ratio_N), low, high).sum()) for sign in (1, -1)
    }
    assert int(counts[edges.index(1 + high) + 1 :].sum()) == taken[1]
    assert int(counts[: edges.index(1 - low) + 1].sum()) == taken[-1]


@given(st.lists(st.floats(0, 5), max_size=40))
def test_the_same_as_counting_one_by_one(ratios):
    below, above = ratio_edges(0.2, 0.28, INF)
    bins = [sum(edge <= r for edge in below) + sum(edge < r for edge in above) for r in ratios]
    expected = [bins.count(place) for place in range(41)]
    assert ratio_counts(f64(*ratios), below, above).tolist() == expected
