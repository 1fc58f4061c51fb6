"""The course of a reward: a rise is told of noise as seldom as promised, and what an interval supposes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from truing.doctor.hypotheses.reward_trend import MIN_UPDATES, P_VALUE, reward_trend

DRAWS = 400

NOISE = {
    "normal": lambda rng, updates: rng.normal(0.3, 0.1, updates),
    "shares of eight": lambda rng, updates: rng.binomial(8, 0.3, updates) / 8,
    "rare": lambda rng, updates: rng.binomial(32, 0.02, updates) / 32,
    "one prompt": lambda rng, updates: rng.binomial(4, rng.beta(0.2, 0.3, updates)) / 4,
    "tails": lambda rng, updates: rng.standard_cauchy(updates),
}
RISE = [0.1, 0.2, 0.15, 0.3, 0.4, 0.35, 0.5, 0.6, 0.55, 0.7]


@pytest.mark.integration
@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("updates", [3, 9, 40, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 16))])
def test_noise_is_seldom_called_learning(kind, updates):
    """A line through three shares of eight is exact in one case of twelve."""
    rng = np.random.default_rng(updates)
    wrong = sum(reward_trend(NOISE[kind](rng, updates).tolist()).learns for _ in range(DRAWS))
    assert wrong / DRAWS <= P_VALUE + 3 * math.sqrt(P_VALUE * (1 - P_VALUE) / DRAWS)


@pytest.mark.parametrize("rewards", [[0.25, 0.375, 0.5], [0.1 * i for i in range(MIN_UPDATES - 1)]])
def test_a_few_updates_tell_no_trend(rewards):
    assert not reward_trend(rewards).learns


def test_two_looks_at_the_same_updates_share_the_error():
    trend = reward_trend(RISE)
    slope = stats.linregress(range(len(RISE)), RISE).pvalue
    ends = stats.ttest_ind(RISE[-3:], RISE[:3], equal_var=False)
    assert trend.chance == pytest.approx(2 * min(slope, ends.pvalue))
    assert (trend.low, trend.high) == pytest.approx(tuple(ends.confidence_interval(0.95)))


def test_the_interval_of_a_gain_says_what_it_supposes():
    trend = reward_trend(RISE)
    assert trend.learns
    assert trend.summary().endswith(f"{trend.gain.signed}")
    assert trend.gain.signed.endswith("(assumes normal rewards)")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("rewards", [[0.0] * 12, [0.1 + 0.2, 0.3] * 6, [0.0] * 6 + [1.0] * 6])
def test_ends_that_do_not_vary_have_no_interval(rewards):
    """Nothing says how far a mean of equal values is off: an interval of no width would be wrong."""
    trend = reward_trend(rewards)
    assert math.isnan(trend.low)
    assert math.isnan(trend.high)
    assert "[" not in trend.summary()


def test_a_constant_end_beside_one_that_varies_is_no_matter_for_a_warning():
    with np.errstate(all="raise"):
        trend = reward_trend([0.0] * 5 + [0.2, 0.4, 0.6, 0.5, 0.7, 0.6, 0.8])
    assert trend.low < trend.gain.mean < trend.high


def test_a_rise_without_the_main_part_of_the_reward_is_not_called_learning():
    rising = reward_trend(RISE)
    assert rising.learns
    alone = replace(rising, unearned=("exact",))
    assert (alone.rises, alone.learns) == (True, False)
    assert alone.summary().startswith("the reward goes up, but no rollout earns anything of exact: 0.1")
    flat = replace(reward_trend([0.1] * 10), unearned=("exact",))
    assert flat.summary().startswith("the reward does not clearly go up")
