"""Bets on signs: by hand, against a slow second implementation, under nulls of every shape, and coverage."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from truing.lab.stats import bets as wealth_of
from truing.lab.stats.e_process import (
    is_above,
    is_below,
    is_futile,
    lower_bound,
    max_wealth,
    min_pairs,
    upper_bound,
    wealth,
)

ERRORS = (0.05, 0.0125)
SEQUENCES, PAIRS = 20_000, 12

numbers = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 6))
series = st.lists(numbers, min_size=1, max_size=14)
long_series = st.lists(numbers, min_size=7, max_size=14)


def slow_wealth(differences):
    """Three gamblers, one pair after the other, in plain Python."""
    purses, means = [1.0, 1.0, 1.0], []
    for index, difference in enumerate(differences):
        seen = [abs(each) for each in differences[: index + 1]]
        usual = sum(seen) / len(seen)
        for k, eagerness in enumerate((1, 2, 4)):
            if difference == 0:
                continue
            stake = math.tanh(eagerness * abs(difference) / usual)
            purses[k] += stake * purses[k] if difference > 0 else -stake * purses[k]
        means.append(sum(purses) / 3)
    return means


def test_wealth_after_one_pair_by_hand():
    """The first size is its own mean, so that the stakes are tanh 1, tanh 2 and tanh 4."""
    gain = (0.761594 + 0.964028 + 0.999329) / 3
    assert wealth([0.3])[0] == pytest.approx(1 + gain, abs=1e-6)
    assert wealth([-0.3])[0] == pytest.approx(1 - gain, abs=1e-6)


def test_wealth_after_two_pairs_by_hand():
    """Sizes 1 and 3: their mean is 2, the second share 1.5, the stakes tanh 1.5, tanh 3 and tanh 6."""
    first, second = (0.761594, 0.964028, 0.999329), (0.905148, 0.995055, 0.999988)
    won = sum((1 + a) * (1 + b) for a, b in zip(first, second, strict=True)) / 3
    lost = sum((1 + a) * (1 - b) for a, b in zip(first, second, strict=True)) / 3
    assert wealth([1.0, 3.0])[1] == pytest.approx(won, abs=1e-5)
    assert wealth([1.0, -3.0])[1] == pytest.approx(lost, abs=1e-5)


@given(series)
def test_wealth_is_what_the_slow_one_says(data):
    assert wealth(data) == pytest.approx(slow_wealth(data), rel=1e-9, abs=1e-12)


@given(st.lists(series.filter(lambda s: len(s) >= 5).map(lambda s: s[:5]), min_size=2, max_size=4))
def test_many_sequences_at_once_are_each_alone(rows):
    together = wealth(np.asarray(rows))
    for row, found in zip(rows, together, strict=True):
        assert np.array_equal(wealth(row), found)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_a_bet_on_signs_is_fair(sizes):
    """Over all signs of given sizes the mean of wealth is exactly 1, after each pair."""
    signs = np.asarray(np.meshgrid(*[[-1, 1]] * len(sizes))).reshape(len(sizes), -1).T
    assert wealth(signs * np.asarray(sizes)).mean(axis=0) == pytest.approx(np.ones(len(sizes)), rel=1e-9)


@given(series, series)
def test_what_is_to_come_changes_nothing_before(data, later):
    assert np.array_equal(wealth(data + later)[: len(data)], wealth(data))


@given(series, st.floats(0.01, 100))
def test_wealth_knows_no_unit(data, unit):
    assert wealth(np.asarray(data) * unit) == pytest.approx(wealth(data), rel=1e-6, abs=1e-9)


def test_no_difference_is_no_bet():
    assert wealth([0.0, 0.0, 0.0]).tolist() == [1.0, 1.0, 1.0]
    assert wealth([0.0, 1.0])[0] == 1
    assert wealth([2.0, 0.0])[1] == wealth([2.0])[0]


def test_a_tie_before_it_makes_a_pair_look_large():
    """Shares are of the mean with the ties in it: 1 ÷ ½."""
    expected = np.mean([1 + math.tanh(2 * k) for k in (1, 2, 4)])
    assert wealth([0.0, 1.0])[1] == pytest.approx(expected)


def test_most_is_the_highest_ever_and_no_less_than_the_beginning():
    assert max_wealth([1.0, -1.0]) == wealth([1.0])[0]
    assert max_wealth([-1.0, -1.0]) == 1
    assert max_wealth(np.empty(0)) == 1


# Under the null no bet wins.

NULLS = {
    "normal": lambda r, n: r.standard_normal(n),
    "cauchy": lambda r, n: r.standard_cauchy(n),
    "collapse or not": lambda r, n: (r.random(n) < 1 / 3) * 1.0 - (r.random(n) < 1 / 3) * 1.0,
    "two points": lambda r, n: r.choice([-1.0, 1.0], n),
    "lognormals": lambda r, n: r.lognormal(0, 2, n) - r.lognormal(0, 2, n),
    "rounded": lambda r, n: np.round(r.standard_normal(n)),
    "a scale that grows": lambda r, n: r.standard_normal(n) * 3.0 ** np.arange(n[1]),
    "a scale that shrinks": lambda r, n: r.standard_normal(n) / 3.0 ** np.arange(n[1]),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", NULLS)
def test_an_arm_that_does_nothing_is_seldom_proven(name, error):
    """Looked at after each of twelve pairs: the share that *ever* reaches 1 ÷ error."""
    data = NULLS[name](np.random.default_rng(5), (SEQUENCES, PAIRS))
    share = (max_wealth(data) * error >= 1).mean()
    assert share <= error + 3 * math.sqrt(error * (1 - error) / SEQUENCES)
    assert share > 0 or error < 0.05  # nor is it a test that never says anything


def test_the_null_test_would_see_a_cheat():
    """A bettor that adds a quarter of a deviation is caught by the same bound."""
    data = NULLS["normal"](np.random.default_rng(5), (SEQUENCES, PAIRS)) + 0.25
    assert (max_wealth(data) * 0.05 >= 1).mean() > 0.05 + 3 * math.sqrt(0.05 * 0.95 / SEQUENCES)


@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [
        "cauchy",
        "collapse or not",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("normal", "lognormals")),
    ],
)
def test_bounds_hold_at_every_look(name):
    """Whether the true shift lies below ``low`` is whether the shifted data are proven to be above it."""
    error, shift = 0.05, 0.7
    data = NULLS[name](np.random.default_rng(8), (400, PAIRS)) + shift
    lows = np.asarray([lower_bound(row, error) for row in data])
    highs = np.asarray([upper_bound(row, error) for row in data])
    allowed = error + 3 * math.sqrt(error * (1 - error) / len(data))
    assert (lows > shift).mean() <= allowed
    assert (highs < shift).mean() <= allowed
    assert np.isfinite(lows).all()
    assert np.isfinite(highs).all()


def test_bounds_as_they_are_looked_at_again_and_again():
    """All bounds of a sequence at once: at 5, 6, … 12 pairs."""
    error, r = 0.05, np.random.default_rng(9)
    wrong = 0
    for row in r.standard_normal((100, PAIRS)):
        wrong += any(lower_bound(row[:n], error) > 0 for n in range(min_pairs(error), PAIRS + 1))
    assert wrong / 100 <= error + 3 * math.sqrt(error * (1 - error) / 100)


# Bounds.


@given(series, st.sampled_from(ERRORS))
def test_low_is_the_mirror_of_high(data, error):
    assert lower_bound(data, error) == -upper_bound([-each for each in data], error)


@given(long_series, st.floats(-50, 50), st.sampled_from(ERRORS))
def test_a_shift_shifts_the_bound(data, shift, error):
    assume(np.ptp(data) > 1e-3)
    bound, moved = lower_bound(data, error), lower_bound(np.asarray(data) + shift, error)
    assert moved == pytest.approx(bound + shift, abs=1e-6 * (np.ptp(data) + 1)) or moved == bound == -math.inf


@given(long_series, st.floats(0.1, 100), st.sampled_from(ERRORS))
def test_a_unit_scales_the_bound(data, unit, error):
    assume(np.ptp(data) > 1e-3)
    bound, scaled = lower_bound(data, error), lower_bound(np.asarray(data) * unit, error)
    assert scaled == pytest.approx(bound * unit, abs=1e-6 * unit * (np.ptp(data) + 1)) or scaled == bound


@given(long_series, st.sampled_from(ERRORS))
def test_everything_below_low_is_refuted_and_just_above_it_is_not(data, error):
    bound, spread = lower_bound(data, error), np.ptp(data)
    assume(math.isfinite(bound) and spread > 1e-3)
    for step in np.geomspace(1e-6, 1e5, 60):
        assert is_above(data, bound - step * spread, error)
    assert not is_above(data, bound + 1e-6 * spread, error)


@given(long_series)
def test_more_error_is_narrower(data):
    assert lower_bound(data, 0.01) <= lower_bound(data, 0.05) + 1e-9 <= lower_bound(data, 0.2) + 2e-9
    assert upper_bound(data, 0.01) >= upper_bound(data, 0.05) - 1e-9


@given(long_series, st.sampled_from(ERRORS))
def test_a_later_pair_never_widens(data, error):
    """What was refuted once stays refuted, as evidence that was published does."""
    spread = max(np.ptp(data), 1e-3)
    assert lower_bound(data, error) >= lower_bound(data[:-1], error) - 1e-4 * spread


@given(long_series, st.sampled_from(ERRORS))
def test_low_is_not_above_high(data, error):
    assert lower_bound(data, error) <= upper_bound(data, error)


@given(long_series, numbers, st.sampled_from(ERRORS))
def test_a_bound_is_proven_from_one_side_alone(data, bound, error):
    assert is_below(data, bound, error) == is_above([-each for each in data], -bound, error)
    if is_above(data, bound, error):
        assert lower_bound(data, error) >= bound - 1e-6 * (abs(bound) + np.ptp(data) + 1)


def test_few_pairs_have_no_bounds():
    for data in ([], [1.0], [1.0] * (min_pairs(0.05) - 1)):
        assert (lower_bound(data, 0.05), upper_bound(data, 0.05)) == (-math.inf, math.inf)
        assert not is_above(data, -1e9, 0.05)


@pytest.mark.parametrize("value", [3.0, -3.0, 1e-7, 1e9])
def test_equal_pairs_are_known_exactly(value):
    data = [value] * min_pairs(0.05)
    assert lower_bound(data, 0.05) == pytest.approx(value, rel=1e-6)
    assert upper_bound(data, 0.05) == pytest.approx(value, rel=1e-6)
    assert lower_bound(data, 0.05) <= value <= upper_bound(data, 0.05)


def test_no_difference_at_all_is_an_effect_of_zero():
    data = [0.0] * 12
    assert not is_above(data, 0.0, 0.05)
    assert not is_below(data, 0.0, 0.05)
    assert is_above(data, -0.01, 0.05)
    assert -1e-9 < lower_bound(data, 0.05) <= 0 <= upper_bound(data, 0.05) < 1e-9


def test_low_by_hand():
    """At the bound the wealth of bets against it is what the error asks for, 20."""
    data = [5.0, 3.0, 4.0, 2.0, 6.0, 7.0]
    assert 1.0 < lower_bound(data, 0.05) < 3.0
    assert slow_wealth([d - lower_bound(data, 0.05) + 1e-6 for d in data])[-1] == pytest.approx(20, rel=1e-2)


def test_fewest_by_hand():
    """With all signs and sizes alike wealth is the mean of (1 + tanh κ)ⁿ."""
    for error in (0.5, 0.05, 0.0125, 0.05 / 7):
        pairs = min_pairs(error)
        value = [sum((1 + math.tanh(k)) ** n for k in (1, 2, 4)) / 3 for n in (pairs - 1, pairs)]
        assert value[0] < 1 / error <= value[1]


def test_what_is_not_a_number_proves_nothing():
    """NaN and infinities are no evidence, and raise nothing; a lab refuses such pairs before."""
    for bad in (math.nan, math.inf, -math.inf):
        with np.errstate(all="ignore"):
            assert not is_above([bad] * 12, 0.0, 0.05)
            assert lower_bound([1.0] * 11 + [bad], 0.05) == -math.inf


def test_wealth_is_lost_for_good():
    """A loss of everything at the largest stake leaves the small stakes alone."""
    assert wealth([1.0, -1000.0, *[1.0] * 3])[-1] < 0.2
    assert not is_above([1.0, -1000.0, *[1.0] * 10], 0.0, 0.05)


# Hopeless.


def best_continuation(data, bound, seeds):
    """The most that anybody reaches from here, tried with pairs that grow without end, or do not."""
    left = seeds - len(data)
    found = 0.0
    for growth in (1.0, 10.0, 1e6):
        for side in (1, -1):
            start = max([abs(each - bound) for each in data], default=1.0) or 1.0
            more = [bound + side * start * growth ** (k + 1) for k in range(left)]
            whole = [side * (each - bound) for each in (*data, *more)]
            found = max(found, *slow_wealth(whole), 1.0) if whole else found
    return found


@given(st.lists(numbers, max_size=8), st.integers(0, 6), st.sampled_from([0.05, 0.0125, 0.3]), numbers)
def test_what_is_hopeless_is_reached_by_no_continuation(data, more, error, bound):
    seeds = len(data) + more
    if is_futile(data, bound, seeds, error):
        assert best_continuation(data, bound, seeds) < 1 / error


@given(st.lists(numbers, min_size=1, max_size=7), st.integers(1, 6), st.data())
def test_what_is_hopeless_is_reached_by_no_random_continuation(data, more, drawn):
    seeds = len(data) + more
    if is_futile(data, 0.0, seeds, 0.05):
        later = drawn.draw(st.lists(numbers, min_size=more, max_size=more))
        assert not is_above(data + later, 0, 0.05)
        assert not is_below(data + later, 0, 0.05)


@given(st.lists(numbers.filter(bool), min_size=2, max_size=7), st.integers(1, 6))
def test_it_is_given_up_hardly_later_than_need_be(data, more):
    """Pairs that grow without end nearly double wealth: what is not hopeless is within a fifth of reached."""
    seeds = len(data) + more
    if not is_futile(data, 0.0, seeds, 0.05):
        assert best_continuation(data, 0.0, seeds) > 0.8 * 20


def test_hopeless_by_hand():
    assert is_futile([], 0.0, 4, 0.05)  # 2⁴ < 20
    assert not is_futile([], 0.0, 5, 0.05)
    assert not is_futile([1.0] * 6, 0.0, 6, 0.05)  # it is proven already
    assert not is_futile([-1.0] * 6, 0.0, 6, 0.05)  # and so is the opposite
    assert is_futile([1.0, -1.0] * 3, 0.0, 6, 0.05)
    assert is_futile([1.0, -1.0] * 3, 0.0, 8, 0.05)


# Pinned, so that a change of the stakes is seen.


def test_stakes_are_those_that_are_written_down():
    assert wealth_of.KAPPAS == (1.0, 2.0, 4.0)
    assert wealth_of.LAMBDAS == (1.0, 0.5)
    assert [min_pairs(each) for each in (0.05, 0.025, 0.0125, 0.05 / 7)] == [5, 6, 7, 8]


def test_a_clear_effect_is_seen_as_early_as_a_sign_test_with_one_look():
    """The price of looking at any time: one pair more than the exact sign test of the same error."""
    for error in ERRORS:
        signs = next(n for n in range(1, 30) if stats.binom.pmf(n, n, 0.5) <= error)
        assert signs <= min_pairs(error) <= signs + 1
