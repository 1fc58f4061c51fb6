"""Power as stated is power in fresh draws; noise by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.lab.stats.e_process import max_wealth, min_pairs
from truing.lab.stats.power import (
    DRAWS,
    MIN_POWER,
    evaluation_noise,
    min_detectable_excess,
    power,
    seeds_needed,
    training_noise,
    within_needed,
)


@pytest.mark.parametrize(("effect", "seeds", "error"), [(0.8, 12, 0.05), (1.2, 12, 0.0125), (1.5, 8, 0.05)])
def test_stated_power_is_power_in_fresh_draws(effect, seeds, error):
    """By numpy's own generator, 20,000 experiments: both are estimates."""
    fresh = np.random.Generator(np.random.MT19937(77)).normal(effect, 1.0, (20_000, seeds))
    seen = float((max_wealth(fresh) * error >= 1).mean())
    spread = math.sqrt(seen * (1 - seen) * (1 / DRAWS + 1 / 20_000))
    assert abs(power(effect, 1.0, seeds, error) - seen) <= 4 * spread
    assert 0.2 < seen < 0.99  # or the comparison says nothing


@pytest.mark.parametrize(("seeds", "error"), [(8, 0.05), (12, 0.0125)])
def test_the_detectable_effect_is_seen_with_the_power_that_is_stated(seeds, error):
    effect = min_detectable_excess(0.3, seeds, error)
    fresh = np.random.Generator(np.random.MT19937(78)).normal(effect, 0.3, (20_000, seeds))
    seen = float((max_wealth(fresh) * error >= 1).mean())
    assert (
        abs(seen - MIN_POWER) <= 4 * math.sqrt(MIN_POWER * (1 - MIN_POWER) * (1 / DRAWS + 1 / 20_000)) + 2e-3
    )


@given(st.floats(-2, 3), st.floats(0, 1), st.integers(2, 12))
def test_power_rises_with_the_effect(effect, more, seeds):
    assert power(effect + more, 1.0, seeds, 0.05) >= power(effect, 1.0, seeds, 0.05)


@given(st.floats(0.1, 3), st.floats(0.01, 100), st.integers(4, 12))
def test_power_knows_no_unit(effect, unit, seeds):
    assert power(effect * unit, unit, seeds, 0.05) == pytest.approx(power(effect, 1.0, seeds, 0.05), abs=0.01)


def test_power_rises_with_seeds_and_error():
    assert power(1.0, 1.0, 16, 0.05) > power(1.0, 1.0, 8, 0.05) + 0.1
    assert power(1.0, 1.0, 12, 0.05) > power(1.0, 1.0, 12, 0.01) + 0.1


def test_power_where_nothing_is_there_is_no_more_than_the_error():
    assert 0 < power(0.0, 1.0, 12, 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)
    assert power(-1.0, 1.0, 12, 0.05) < 0.01


def test_power_without_noise_is_all_or_nothing():
    enough = min_pairs(0.05)
    assert power(0.1, 0.0, enough, 0.05) == 1
    assert power(0.1, 0.0, enough - 1, 0.05) == 0
    assert power(0.0, 0.0, 12, 0.05) == 0
    assert power(-0.1, 0.0, 12, 0.05) == 0


def test_too_few_pairs_see_nothing():
    assert min_detectable_excess(1.0, min_pairs(0.05) - 1, 0.05) == math.inf
    assert min_detectable_excess(0.0, min_pairs(0.05) - 1, 0.05) == math.inf
    assert min_detectable_excess(0.0, 12, 0.05) == 0
    assert math.isnan(min_detectable_excess(math.nan, 12, 0.05))


def test_what_is_detectable_shrinks_with_seeds():
    results = [min_detectable_excess(1.0, seeds, 0.05) for seeds in (5, 6, 8, 12, 24)]
    assert results == sorted(results, reverse=True)
    assert results[0] > 2 * results[-1]


BOUNDED = [
    (0.5, 0.3, 16, 0.05, 0.0, 1.0),
    (0.3, 0.1, 24, 0.0125, 0.1, 0.5),
    (0.05, 0.03, 24, 0.05 / 7, 0.0, 0.15),
]


@pytest.mark.parametrize(("effect", "deviation", "seeds", "error", "bound", "within"), BOUNDED)
def test_stated_power_of_a_mean_is_power_in_fresh_draws(effect, deviation, seeds, error, bound, within):
    fresh = np.random.Generator(np.random.MT19937(79)).normal(effect, deviation, (20_000, seeds))
    seen = float((max_wealth(np.clip(fresh, -within, within), bound, within) * error >= 1).mean())
    stated = power(effect, deviation, seeds, error, bound=bound, within=within)
    assert abs(stated - seen) <= 4 * math.sqrt(seen * (1 - seen) * (1 / DRAWS + 1 / 20_000)) + 1e-3
    assert 0.1 < seen <= 1


def test_the_detectable_mean_is_seen_with_the_power_that_is_stated():
    beyond = min_detectable_excess(0.1, 24, 0.0125, bound=0.1, within=0.5)
    assert power(0.1 + beyond, 0.1, 24, 0.0125, bound=0.1, within=0.5) == pytest.approx(MIN_POWER, abs=0.02)
    assert min_detectable_excess(0.1, 6, 0.05 / 7, within=1.0) == math.inf
    assert min_detectable_excess(0.0, 24, 0.05, within=1.0) > 0.1, (
        "no noise in few pairs leaves room for a rare loss"
    )


def test_a_mean_takes_more_pairs_than_signs_and_fewer_the_nearer_pairs_lie_to_0():
    results = [seeds_needed(0.05, 0.02, 0.05 / 7, within=within) for within in (0.1, 0.2, 0.5)]
    assert results[0] < results[1] < results[2] <= 200
    assert seeds_needed(0.05, 0.02, 0.05 / 7) <= results[0]
    near = within_needed(0.05, 0.02, 24, 0.05 / 7, bound=0.0, within=1.0)
    assert (
        power(0.05, 0.02, 24, 0.05 / 7, within=near)
        >= MIN_POWER
        > power(0.05, 0.02, 24, 0.05 / 7, within=2 * near)
    )
    assert math.isnan(within_needed(0.05, 0.5, 24, 0.05 / 7, bound=0.0, within=1.0))


def test_the_fewest_seeds_that_are_needed():
    needed = seeds_needed(1.0, 1.0, 0.05)
    assert needed is not None
    assert power(1.0, 1.0, needed, 0.05) >= MIN_POWER
    assert power(1.0, 1.0, needed - 2, 0.05) < MIN_POWER
    assert seeds_needed(100.0, 1.0, 0.05) == min_pairs(0.05)
    assert seeds_needed(1.0, 0.0, 0.05) == min_pairs(0.05)
    assert seeds_needed(0.01, 1.0, 0.05) is None
    assert seeds_needed(1.0, 1.0, 0.05, max_seeds=min_pairs(0.05) - 1) is None
    assert seeds_needed(0.0, 1.0, 0.05) is None
    assert seeds_needed(1.0, math.nan, 0.05) is None


# Noise by hand.


def test_noise_of_an_evaluation_by_hand():
    """Two policies, each with a variance of 0.10 ÷ 1024 about the tasks' means."""
    assert evaluation_noise(256, 4) == pytest.approx(math.sqrt(0.2 / 1024))
    assert evaluation_noise(256, 4) * 2.8 == pytest.approx(0.04, abs=0.002)


def test_noise_of_training_by_hand():
    assert training_noise(4, 8, 25) == pytest.approx(math.sqrt(0.2 / 800))
    assert training_noise(4, 8, 25) == evaluation_noise(4 * 25, 8)


def test_noise_as_it_was_drawn():
    """Tasks with means of their own, answered by two policies: the difference scatters as stated."""
    r, tasks, samples = np.random.default_rng(4), 16, 4
    chance = r.beta(1.15, 0.62, (4000, tasks))  # mean 0.65; variance of an answer about it: 0.146
    own = float((chance * (1 - chance)).mean())
    one, other = (r.binomial(samples, chance).mean(axis=1) / samples for _ in range(2))
    stated = evaluation_noise(tasks, samples) * math.sqrt(own / 0.10)
    assert (one - other).std() == pytest.approx(stated, rel=0.05)
