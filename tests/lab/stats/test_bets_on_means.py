"""Bets on a mean: by hand, against a slow second implementation, and never wrong oftener than stated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.lab.stats.bets import LAMBDAS, mean_bet_wealth
from truing.lab.stats.e_process import (
    is_above,
    is_below,
    is_futile,
    lower_bound,
    max_wealth,
    min_pairs,
    upper_bound,
)

SEQUENCES = 4000
unit = st.floats(-1, 1).map(lambda x: round(x, 6))
series = st.lists(unit, min_size=1, max_size=14)


def slow_wealth(differences, bound, within):
    """One gambler after the other, one pair after the other, in plain Python."""
    purses = [1.0 for _ in LAMBDAS]
    for difference in differences:
        for i, share in enumerate(LAMBDAS):
            purses[i] += share * purses[i] * (difference - bound) / (within + bound)
    return sum(purses) / len(purses)


def test_wealth_by_hand():
    """Half of it is all on each pair: (1.5 × 0.8 + 1.25 × 0.9) ÷ 2."""
    assert mean_bet_wealth([0.5, -0.2], 0.0, 1.0).tolist() == pytest.approx([1.375, 1.1625])
    assert mean_bet_wealth([0.5], 0.25, 0.75)[0] == pytest.approx((1.25 + 1.125) / 2)


@given(series, st.floats(-0.9, 0.9))
def test_wealth_is_what_the_slow_one_says(data, bound):
    assert mean_bet_wealth(data, bound, 1.0)[-1] == pytest.approx(
        slow_wealth(data, bound, 1.0), rel=1e-9, abs=1e-12
    )


@given(series, st.floats(-0.9, 0.8), st.floats(0, 0.1))
def test_a_higher_bound_is_never_easier(data, bound, more):
    assert (mean_bet_wealth(data, bound + more, 1.0) <= mean_bet_wealth(data, bound, 1.0) + 1e-9).all()


@given(series, st.sampled_from([0.05, 0.0125]))
def test_bounds_are_mirror_images_that_hold_the_mean(data, error):
    assert lower_bound(data, error, 1.0) == -upper_bound([-each for each in data], error, 1.0)
    assert -1 <= lower_bound(data, error, 1.0) <= np.mean(data) + 1e-6
    assert np.mean(data) - 1e-6 <= upper_bound(data, error, 1.0) <= 1


@given(series, st.sampled_from([0.05, 0.3]), unit)
def test_a_bound_is_where_the_proof_ends(data, error, bound):
    if is_above(data, bound, error, 1.0):
        assert lower_bound(data, error, 1.0) >= bound - 1e-6
    if is_below(data, bound, error, 1.0):
        assert upper_bound(data, error, 1.0) <= bound + 1e-6


def test_no_difference_at_all_leaves_room_for_a_rare_one():
    """After 12 pairs of 0 a loss of 1 in ever so many runs is not ruled out: no proof that the mean is 0."""
    bound = lower_bound([0.0] * 12, 0.05, 1.0)
    assert slow_wealth([0.0] * 12, bound, 1.0) == pytest.approx(20, rel=1e-6)
    assert -0.26 < bound < -0.25
    assert not is_above([0.0] * 200, 0.0, 0.05, 1.0)


def test_a_pair_that_lies_below_what_was_supposed_voids_the_proof_and_one_above_does_not():
    assert is_above([0.5] * 12, 0.0, 0.05, 0.5)
    assert not is_above([0.5] * 12 + [-0.6], 0.0, 0.05, 0.5)
    assert is_above([0.5] * 11 + [3.0], 0.0, 0.05, 0.5)
    assert lower_bound([0.5] * 12 + [-0.6], 0.05, 0.5) == -math.inf
    assert not is_below([-0.5] * 12 + [0.6], 0.0, 0.05, 0.5)


def test_what_is_below_all_that_can_be_is_passed_by_one_pair():
    assert is_above([0.0], -1.5, 0.05, 1.0)
    assert not is_above([], -1.5, 0.05, 1.0)


@given(st.lists(unit, max_size=8), st.integers(0, 6), st.data())
def test_what_is_hopeless_is_reached_by_no_continuation(data, more, drawn):
    if is_futile(data, 0.2, len(data) + more, 0.05, 1.0):
        later = drawn.draw(st.lists(unit, min_size=more, max_size=more))
        assert not is_above(data + later, 0.2, 0.05, 1.0)
        assert not is_below(data + later, 0.2, 0.05, 1.0)


def test_the_fewest_pairs():
    assert [min_pairs(each, 1.0) for each in (0.05, 0.025, 0.0125, 0.05 / 7)] == [6, 7, 8, 8]
    assert min_pairs(0.05, 0.1) == min_pairs(0.05, 1.0)


def two_points(low, high, share):
    """``high`` in this share of draws, and ``low`` in the others."""
    return lambda rng, shape: np.where(rng.random(shape) < share, high, low)


NULLS = {
    "symmetric": lambda rng, shape: np.clip(rng.normal(0, 0.2, shape), -1, 1),
    "mostly a gain, rarely all is lost": two_points(0.1, -0.9, 0.1),
    "mostly a gain, very rarely all is lost": two_points(1 / 99, -1.0, 0.01),
    "mostly a loss, rarely a large gain": two_points(-0.1, 0.9, 0.1),
    "outcomes": lambda rng, shape: rng.choice([-1.0, 0.0, 1.0], shape, p=[0.1, 0.8, 0.1]),
    "skewed": lambda rng, shape: rng.beta(0.2, 0.6, shape) - 0.25,
    "skewed to the left": lambda rng, shape: 0.25 - rng.beta(0.2, 0.6, shape),
    "constant": lambda rng, shape: np.zeros(shape),
}


@pytest.mark.parametrize("name", NULLS)
def test_a_mean_of_nothing_is_seldom_proven_whatever_the_distribution(name):
    """Looked at after each of 200 pairs, on either side: the shares that *ever* prove it."""
    data = NULLS[name](np.random.default_rng(6), (SEQUENCES, 200))
    for side in (data, -data):
        share = (max_wealth(side, 0.0, 1.0) * 0.05 >= 1).mean()
        assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / SEQUENCES)


@pytest.mark.parametrize("name", ["mostly a gain, rarely all is lost", "skewed to the left"])
def test_bets_on_signs_would_fail_the_same_test(name):
    data = NULLS[name](np.random.default_rng(6), (SEQUENCES, 64))
    assert (max_wealth(data) * 0.05 >= 1).mean() > 0.15


@pytest.mark.integration
@pytest.mark.parametrize("name", ["mostly a gain, rarely all is lost", "outcomes", "skewed", "symmetric"])
@pytest.mark.parametrize("pairs", [12, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 64))])
def test_bounds_hold_the_mean_as_often_as_stated(name, pairs):
    data = NULLS[name](np.random.default_rng(7), (200, pairs))
    error = 0.05
    wrong_low = np.mean([lower_bound(row, error, 1.0) > 1e-9 for row in data])
    wrong_high = np.mean([upper_bound(row, error, 1.0) < -1e-9 for row in data])
    assert max(wrong_low, wrong_high) <= error + 3 * math.sqrt(error * (1 - error) / 200)
