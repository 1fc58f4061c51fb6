"""Curves keep every spike, mean what they say, and leave out what was not recorded."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.board.data import curves
from truing.board.data.curves import POINTS, curve

INF, NAN = math.inf, math.nan


def slow(values, points, start=0, end=None, log=False):
    """The same, bucket by bucket and value by value."""
    known = [
        (i, value)
        for i, value in enumerate(values)
        if i >= start and (end is None or i < end) and math.isfinite(value) and (value > 0 or not log)
    ]
    if len(known) <= points:
        return {"x": [i + 1 for i, _ in known], "y": [value for _, value in known]}
    first, last = known[0][0], known[-1][0]
    width = math.ceil((last - first + 1) / points)
    curve = {name: [] for name in ("x", "y", "low", "high", "low_at", "high_at")} | {"width": width}
    for begin in range(first, last + 1, width):
        inside = [(i, value) for i, value in known if begin <= i < begin + width]
        if not inside:
            continue
        low, high = min(value for _, value in inside), max(value for _, value in inside)
        curve["x"].append(sum(i + 1 for i, _ in inside) / len(inside))
        curve["y"].append(math.fsum(value for _, value in inside) / len(inside))
        curve["low"].append(low)
        curve["high"].append(high)
        curve["low_at"].append(next(i for i, value in inside if value == low) + 1)
        curve["high_at"].append(next(i for i, value in inside if value == high) + 1)
    return curve


numbers = st.one_of(st.just(NAN), st.sampled_from([INF, -INF, 0.0, 1.0]), st.floats(-1e6, 1e6))


@given(
    st.lists(numbers, max_size=60),
    st.integers(1, 9),
    st.integers(0, 70),
    st.integers(0, 70) | st.none(),
    st.booleans(),
)
def test_curves_are_what_a_slow_second_implementation_says(values, points, start, end, log):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "POINTS", points)
        got = curve(np.array(values, float), start, end, log)
    expected = slow(values, points, start, end, log)
    part = values[start:end]
    assert got.pop("infinite") == sum(map(math.isinf, part))
    assert got.pop("not_above_0") == sum(log and math.isfinite(each) and each <= 0 for each in part)
    assert got.pop("last") == next((each for each in reversed(part) if not math.isnan(each)), None)
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        assert got[name] == (pytest.approx(values, rel=1e-9, abs=1e-9) if name in ("x", "y") else values), (
            name
        )


@given(st.lists(numbers, min_size=1, max_size=60), st.integers(1, 9))
def test_the_least_and_the_largest_of_all_are_never_lost(values, points):
    known = [value for value in values if math.isfinite(value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "POINTS", points)
        got = curve(np.array(values, float))
    assert len(got["x"]) <= points
    shown = (got.get("low", got["y"]), got.get("high", got["y"]))
    assert [min(shown[0], default=None), max(shown[1], default=None)] == [
        min(known, default=None),
        max(known, default=None),
    ]


def test_few_steps_are_reported_as_they_are():
    none = {"infinite": 0, "not_above_0": 0, "last": None}
    facts = {"x": [1, 3], "y": [0.5, 2.0], "infinite": 1, "not_above_0": 0, "last": INF}
    assert curve(np.array([0.5, NAN, 2.0, INF])) == facts
    assert curve(np.array([7.0])) == {"x": [1], "y": [7.0], **none, "last": 7.0}
    assert curve(np.empty(0)) == {"x": [], "y": [], **none}
    assert curve(np.full(3, NAN)) == {"x": [], "y": [], **none}


def test_what_a_log_axis_has_no_place_for_is_counted():
    values = np.array([0.5, 0.0, NAN, -2.0, 4.0, -INF, 0.0])
    facts = {"x": [1, 5], "y": [0.5, 4.0], "infinite": 1, "not_above_0": 3, "last": 0.0}
    assert curve(values, log=True) == facts
    assert curve(values)["y"] == [0.5, 0.0, -2.0, 4.0, 0.0]


def test_a_spike_among_many_is_in_its_bucket_with_its_step():
    values = np.zeros(10 * POINTS)
    values[1234], values[5678] = 9.0, -3.0
    got = curve(values)
    assert (got["width"], len(got["x"])) == (10, POINTS)
    at = 1234 // 10
    assert (got["high"][at], got["high_at"][at], got["y"][at], got["low"][at]) == (9.0, 1235, 0.9, 0.0)
    at = 5678 // 10
    assert (got["low"][at], got["low_at"][at], got["y"][at]) == (-3.0, 5679, -0.3)
    assert got["x"][0] == 5.5  # steps 1 to 10


def test_a_gap_has_no_bucket():
    values = np.ones(10 * POINTS)
    values[1000:3000] = NAN
    got = curve(values)
    assert len(got["x"]) == POINTS - 200
    assert not [x for x in got["x"] if 1000 < x < 3001]


def test_a_stretch_that_is_zoomed_into_has_steps_of_its_own():
    values = np.arange(10.0 * POINTS)
    got = curve(values, 2000, 2003)
    assert got == {
        "x": [2001, 2002, 2003],
        "y": [2000.0, 2001.0, 2002.0],
        "infinite": 0,
        "not_above_0": 0,
        "last": 2002.0,
    }
    assert curve(values, 5990, 99_999)["x"] == list(range(5991, 6001))
    assert curve(values, 99_999)["x"] == []
