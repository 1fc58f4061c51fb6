"""The course of a reward: a rise is told of noise as seldom as promised, and what an interval supposes."""

import math

import numpy as np
import pytest
from scipy import stats

from truing.doctor.causes.trend import MIN_STEPS, P_VALUE, reward_trend

DRAWS = 400

NOISE = {
    "normal": lambda rng, steps: rng.normal(0.3, 0.1, steps),
    "shares of eight": lambda rng, steps: rng.binomial(8, 0.3, steps) / 8,
    "rare": lambda rng, steps: rng.binomial(32, 0.02, steps) / 32,
    "one prompt": lambda rng, steps: rng.binomial(4, rng.beta(0.2, 0.3, steps)) / 4,
    "tails": lambda rng, steps: rng.standard_cauchy(steps),
}
RISE = [0.1, 0.2, 0.15, 0.3, 0.4, 0.35, 0.5, 0.6, 0.55, 0.7]


@pytest.mark.integration
@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("steps", [3, 9, 40, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 16))])
def test_noise_is_seldom_called_learning(kind, steps):
    """A line through three shares of eight is exact in one case of twelve."""
    rng = np.random.default_rng(steps)
    wrong = sum(reward_trend(NOISE[kind](rng, steps).tolist()).rises for _ in range(DRAWS))
    assert wrong / DRAWS <= P_VALUE + 3 * math.sqrt(P_VALUE * (1 - P_VALUE) / DRAWS)


@pytest.mark.parametrize("rewards", [[0.25, 0.375, 0.5], [0.1 * i for i in range(MIN_STEPS - 1)]])
def test_a_few_steps_tell_no_trend(rewards):
    assert not reward_trend(rewards).rises


def test_a_rise_whose_interval_has_0_is_not_called_one():
    """Of 30 steps the slope is certain, by the first three steps alone."""
    rewards = [0.97, 0.98, 0.985, *[1.0, 0.998] * 3, *[1.0] * 21]
    trend = reward_trend(rewards)
    assert trend.chance < P_VALUE
    assert trend.low < 0 < trend.high
    assert not trend.rises
    assert trend.summary().startswith("the reward does not clearly go up")


def test_two_looks_at_the_same_steps_share_the_error():
    trend = reward_trend(RISE)
    slope = stats.linregress(range(len(RISE)), RISE).pvalue
    ends = stats.ttest_ind(RISE[-3:], RISE[:3], equal_var=False)
    assert trend.chance == pytest.approx(2 * min(slope, ends.pvalue))
    assert (trend.low, trend.high) == pytest.approx(tuple(ends.confidence_interval(0.95)))


def test_the_interval_of_a_gain_says_what_it_supposes():
    trend = reward_trend(RISE)
    assert trend.rises
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


NOISY = [0.02, 0.0, 0.03, 0.01, 0.0, 0.02, 0.01, 0.0, 0.02, 0.0]


def test_a_fall_after_the_first_step_is_seen_by_the_spread_within_it():
    trend = reward_trend([0.47, *NOISY], errors=[0.08] * 11)
    assert trend.summary() == "the reward fell from 0.47 to 0.011; it broke at step 2"
    assert (trend.broke, trend.rises) == (1, False)
    assert trend.lost == pytest.approx(1 - 0.011 / 0.47)


@pytest.mark.parametrize(
    ("rewards", "errors"),
    [
        ([0.47, *NOISY], [0.2] * 11),  # one step of few rollouts
        ([0.47, *NOISY], [math.nan] * 11),  # an unknown spread
        ([0.03, *NOISY], [0.001] * 11),  # within the others
    ],
)
def test_a_first_step_that_may_be_chance_is_no_fall(rewards, errors):
    assert not reward_trend(rewards, errors=errors).fell


def test_a_flat_reward_is_told_with_the_change_that_its_steps_would_show():
    """Shown in four of five cases: the interval of a true change of that size excludes 0 as often."""
    rng, count = np.random.default_rng(0), 400
    trend = reward_trend([0.4 + 0.05 * ((-1) ** i) for i in range(24)])
    assert f"these steps would show a change of {trend.resolves:.2g}" in trend.summary()
    found = 0
    for _ in range(count):
        rewards = rng.normal(0.4, 0.05, 24)
        power = reward_trend(rewards.tolist()).resolves
        rewards[-8:] += power
        low = reward_trend(rewards.tolist()).low
        found += low > 0
    assert 0.7 < found / count < 0.9
