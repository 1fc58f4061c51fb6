"""Gaffke's tail probability: by hand, by sampling, and by the Beta distribution."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from truing.errors import InvalidValueError
from truing.ops.bounded_mean import gaffke_tail, gaffke_tail_saddlepoint


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def slow(point_E, mean, draws=200_000):
    """Shares are what exponential numbers have of their sum."""
    share_NE = torch.empty(draws, len(point_E), dtype=torch.float64)
    share_NE.exponential_(generator=torch.Generator().manual_seed(3))
    mean_N = (share_NE @ point_E) / share_NE.sum(1)
    return float((mean_N > mean).double().mean())


def test_by_hand():
    """Of two points the mean is uniform between them; of 0, 0, 1 it is above m with probability (1 − m)²."""
    assert gaffke_tail(f64(2.0, 6.0), 3.0) == pytest.approx(0.75)
    assert gaffke_tail(f64(0.0, 0.0, 1.0), 0.4) == pytest.approx(0.36)
    assert gaffke_tail(f64(0.0, 1.0, 1.0), 0.4) == pytest.approx(1 - 0.16)


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_second_implementation_agrees(seed):
    point_E = torch.rand(3 + 7 * seed, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for mean in (0.3, 0.45, 0.6):
        assert gaffke_tail(point_E, mean) == pytest.approx(slow(point_E, mean), abs=5e-3)


@pytest.mark.parametrize(("ones", "zeros"), [(1, 1), (3, 200), (200, 3), (1, 2000), (600, 600)])
def test_of_ones_and_zeros_it_is_the_beta_distribution(ones, zeros):
    """The share of all ones together is Beta(ones, zeros); no rounding builds up, also in the tails."""
    law = stats.beta(ones, zeros)
    for mean in law.ppf([1e-6, 0.025, 0.5, 0.975]):
        got = gaffke_tail(f64(*[0.0] * zeros, *[1.0] * ones), float(mean))
        assert got == pytest.approx(law.sf(mean), rel=1e-9)


def test_beyond_all_points_nothing_is_left_to_chance():
    assert gaffke_tail(f64(0.5, 0.5), 0.4) == 1
    assert gaffke_tail(f64(0.5, 0.5), 0.5) == gaffke_tail(f64(0.5, 0.5), 0.6) == 0
    assert gaffke_tail(f64(0.0, 1.0), 0.0) == 1
    assert gaffke_tail(f64(0.0, 1.0), 1.0) == 0


def test_whole_numbers_are_no_points():
    with pytest.raises(InvalidValueError):
        gaffke_tail(torch.tensor([0, 1]), 0.5)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=12), st.floats(-2, 2), st.floats(0.5, 3))
def test_the_mirror_image_is_the_rest_and_units_do_not_matter(points, mean, unit):
    result = gaffke_tail(f64(*points), mean)
    assert 0 <= result <= 1
    if all(not math.isclose(point, mean, rel_tol=1e-6, abs_tol=1e-6) for point in points):
        assert result + gaffke_tail(-f64(*points), -mean) == pytest.approx(1, abs=1e-9)
        assert gaffke_tail(unit * f64(*points), unit * mean) == pytest.approx(result, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(0, 1), st.floats(0, 0.5))
def test_it_falls_as_the_mean_rises_and_rises_with_every_point(points, mean, more):
    result = gaffke_tail(f64(*points), mean)
    assert gaffke_tail(f64(*points), mean + more) <= result + 1e-12
    assert gaffke_tail(f64(*points[:-1], points[-1] + more), mean) >= result - 1e-12


POINTS = {"alike": [0.0] * 500, "few": [0.0] * 498 + [1.0] * 2, "spread": torch.rand(500).tolist()}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("tilt", [0.02, 0.2, 0.9, 0.999])
def test_of_many_points_the_saddle_point_is_within_a_hundredth_of_the_chance(name, tilt):
    point_E = f64(*POINTS[name], 1.0)
    mean, tail = gaffke_tail_saddlepoint(*point_E.unique(return_counts=True), tilt)
    exact = gaffke_tail(point_E, mean)
    assert tail == pytest.approx(exact, rel=0.025, abs=1e-12) or exact > 0.2


def test_a_tilt_moves_the_mean_up():
    point_U, count_U = f64(0.0, 0.3, 1.0), torch.tensor([5, 3, 1])
    means = [gaffke_tail_saddlepoint(point_U, count_U, tilt)[0] for tilt in (1e-9, 0.1, 0.5, 0.99, 1 - 1e-12)]
    assert means == sorted(means)
    assert means[0] == pytest.approx((0.9 + 1) / 9)
    assert means[-1] == pytest.approx(1, abs=1e-9)
