"""Intervals of an evaluation: against a second implementation, a closed form, and what they promise."""

import math

import numpy as np
import pytest
from scipy import stats

from truing.errors import DataError
from truing.record import evaluation as module
from truing.record.evaluation import Evaluation, bootstrap, bounded, read_bounds, read_evaluation

RNG = np.random.default_rng(0)
SCORES = RNG.beta(0.5, 0.5, 60).tolist()


def slow_bootstrap(values, resamples=4000):
    """Resample one by one with another generator, and read the percentiles off the sorted means."""
    rng = np.random.default_rng(7)
    means = sorted(sum(rng.choice(values, len(values))) / len(values) for _ in range(resamples))
    return means[round(0.025 * resamples)], means[round(0.975 * resamples) - 1]


def evaluation(name, rewards, bounds=None, samples=1):
    reward = {f"task-{i}": reward for i, reward in enumerate(rewards)}
    return Evaluation(name, reward, {}, {task: [""] * samples for task in reward}, {}, bounds)


def interval(estimate):
    return estimate.low, estimate.high


def test_a_slow_second_implementation_agrees():
    estimate = bootstrap(SCORES, "x")
    low, high = slow_bootstrap(SCORES)
    assert estimate.mean == pytest.approx(sum(SCORES) / 60, abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.01)
    assert estimate.tasks == 60


def test_normal_theory_for_many_tasks():
    """mean ± 1.96 · σ / √n, with σ of the data (n, not n − 1: the bootstrap's own variance)."""
    values = RNG.normal(1.0, 2.0, 1000)
    estimate = bootstrap(values.tolist(), "x")
    half = 1.959964 * values.std() / 1000**0.5
    expected = (values.mean() - half, values.mean() + half)
    assert (estimate.low, estimate.high) == pytest.approx(expected, abs=0.01)


def test_the_interval_covers_the_truth_about_as_often_as_it_says(monkeypatch):
    """95 % of 200 intervals ± 4 standard errors; the percentile bootstrap is a little narrow at n = 40."""
    monkeypatch.setattr(module, "RESAMPLES", 499)
    covered = 0
    for i in range(200):
        estimate = bootstrap((np.random.default_rng(i).random(40) < 0.3).tolist(), str(i))
        covered += estimate.low <= 0.3 <= estimate.high
    assert 0.88 <= covered / 200 <= 0.995


def test_the_same_values_and_key_give_the_same_interval_and_a_key_is_read():
    assert bootstrap(SCORES, "x") == bootstrap(SCORES, "x")
    assert bootstrap(SCORES, "x") != bootstrap(SCORES, "y")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_constant_values_have_an_interval_of_no_width(value):
    estimate = bootstrap([value] * 5, "x")
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx((value, value, value), abs=1e-15)


def test_a_gain_is_paired():
    """Every task gains 0.1: unpaired, the spread between tasks would hide it."""
    before = evaluation("before", SCORES)
    after = evaluation("after", [score + 0.1 for score in SCORES])
    gain = after.gain_over(before)
    assert (gain.mean, gain.low, gain.high) == pytest.approx((0.1, 0.1, 0.1), abs=1e-9)
    assert before.estimate().high - before.estimate().low > 0.1


def test_a_gain_pairs_by_task_and_not_by_order():
    before = Evaluation("before", {"a": 0.0, "b": 1.0}, {}, {}, {}, None)
    after = Evaluation("after", {"b": 1.0, "a": 0.0}, {}, {}, {}, None)
    assert after.gain_over(before).mean == after.gain_over(before).high == 0.0


def test_evaluations_of_different_tasks_have_no_difference():
    with pytest.raises(DataError, match="different tasks") as error:
        evaluation("after", SCORES).gain_over(evaluation("before", SCORES[:-1]))
    assert error.value.got == ["task-59"]


@pytest.mark.parametrize(("right", "tasks"), [(0, 200), (1, 200), (86, 200), (200, 200), (3, 8), (0, 2)])
def test_of_outcomes_it_is_the_interval_of_clopper_and_pearson(right, tasks):
    """A second implementation: scipy's, by the binomial distribution."""
    found = evaluation("x", [1.0] * right + [0.0] * (tasks - right), (0.0, 1.0)).estimate()
    exact = stats.binomtest(right, tasks).proportion_ci(method="exact")
    assert interval(found) == pytest.approx(interval(exact), abs=1e-6)
    assert (found.mean, found.tasks) == (right / tasks, tasks)


def test_where_all_tasks_earned_the_same_others_may_earn_anything_else():
    """By hand: 1 − 0.025^(1/16) = 0.20591 of all tasks may differ, and earn the least or the most."""
    found = evaluation("x", [0.3] * 16, (0.0, 1.0)).estimate()
    assert interval(found) == pytest.approx((0.3 - 0.20591 * 0.3, 0.3 + 0.20591 * 0.7), abs=1e-5)
    twice = evaluation("x", [0.6] * 16, (0.0, 2.0)).estimate()
    assert interval(twice) == pytest.approx([2 * each for each in interval(found)], abs=1e-5)


def test_one_task_that_earns_a_little_makes_no_narrower_interval():
    """The bootstrap's would be a fifth of what it is without that task."""
    none, one = (evaluation("x", [0.0] * 199 + [reward], (0.0, 1.0)).estimate() for reward in (0.0, 0.25))
    assert one.high > none.high > 4 * bootstrap([0.0] * 199 + [0.25], "x").high


DRAWN = {
    "rare": lambda rng: (rng.random(20) < 0.02).astype(float),
    "partial": lambda rng: np.where(rng.random(20) < 0.05, 1.0, 0.1 * rng.random(20)),
    "usual": lambda rng: rng.beta(0.5, 0.5, 20),
}
MEANS = {"rare": 0.02, "partial": 0.05 + 0.95 * 0.05, "usual": 0.5}


@pytest.mark.parametrize(("kind", "missed"), [("rare", 0.6), ("partial", 0.3), ("usual", 0.02)])
def test_within_bounds_it_covers_the_truth_as_often_as_it_says(kind, missed):
    """Of 200 draws of 20 tasks; the bootstrap misses at least so many, so that the draws are hard ones."""
    draws = [DRAWN[kind](np.random.default_rng(seed)).tolist() for seed in range(200)]
    within = [bounded(values, (0.0, 1.0), None) for values in draws]
    assert np.mean([each.low <= MEANS[kind] <= each.high for each in within]) >= 0.935
    booted = [bootstrap(values, "x") for values in draws]
    assert np.mean([not each.low <= MEANS[kind] <= each.high for each in booted]) >= missed


def test_where_nobody_knows_what_tasks_can_earn_only_their_spread_says_anything():
    equal = evaluation("x", [16.0] * 5).estimate()
    assert math.isnan(equal.low)
    assert math.isnan(equal.high)
    assert str(equal) == "16.000 of 5 tasks"
    assert interval(evaluation("x", SCORES).estimate()) == interval(bootstrap(SCORES, "mean"))


def test_a_gain_of_nothing_has_an_interval_where_bounds_are_known():
    none = evaluation("x", [0.0] * 200, (0.0, 1.0))
    gain = none.gain_over(none)
    most = stats.binomtest(0, 200).proportion_ci(method="exact").high
    assert (gain.mean, gain.low, gain.high) == pytest.approx((0.0, -most, most), abs=1e-6)
    mixed = evaluation("y", [0.0, 1.0] * 100, (0.0, 1.0))
    assert mixed.gain_over(none) == bootstrap([0.0, 1.0] * 100, "gain")


def test_an_earlier_record_does_not_say_what_can_be_earned():
    told = {"name": "x", "reward": {"a": 0.0}, "parts": {}, "answers": {}, "failed": {}}
    assert read_evaluation(told).bounds is None
    assert read_evaluation(told | {"bounds": [0.0, 1.5]}).bounds == (0.0, 1.5)


def test_an_estimate_is_printed_with_its_interval_and_what_it_rests_on():
    assert str(bootstrap([0.5, 0.5], "x")) == "0.500 [0.500, 0.500] of 2 tasks"
    assert str(evaluation("x", [0.0] * 200, (0.0, 1.0)).estimate()) == "0.000 [0.000, 0.018] of 200 tasks"
    several = evaluation("x", [0.25, 0.75], samples=4).estimate()
    assert str(several) == "0.500 [0.250, 0.750] of 2 tasks × 4"


@pytest.mark.parametrize("right", [0, 3, 1500, 3000])
def test_of_very_many_tasks_the_normal_interval_is_as_wide_as_the_exact_one(right, monkeypatch):
    outcomes = [1.0] * right + [0.0] * (3000 - right)
    fast = bounded(outcomes, (0.0, 1.0), 1)
    monkeypatch.setattr(module, "MANY", 10**6)
    exact = bounded(outcomes, (0.0, 1.0), 1)
    assert interval(fast) == pytest.approx(interval(exact), abs=1.5e-3)
    assert (fast.mean, fast.tasks) == (exact.mean, 3000)
    if right in (0, 3000):
        assert interval(fast) == pytest.approx(interval(exact), abs=1e-6)


def test_the_bootstrap_of_very_many_tasks_is_the_normal_interval_that_it_comes_to(monkeypatch):
    values = RNG.beta(0.5, 0.5, 3000).tolist()
    slow = bootstrap(values, "x")
    monkeypatch.setattr(module, "RESAMPLED", 1000)
    assert interval(bootstrap(values, "x")) == pytest.approx(interval(slow), abs=1e-3)
    assert bootstrap([0.5] * 1_000_000, "x").tasks == 1_000_000  # and holds no memory for it


@pytest.mark.parametrize(
    "bounds",
    [None, "x", [1.0], [1.0, 0.0], [0.2, 1.0], [-5.0, -6.0], [float("nan"), 1.0], [0.0, float("inf")]],
)
def test_bounds_that_do_not_hold_what_was_earned_are_not_known(bounds):
    told = {"reward": {"a": 0.0, "b": 1.0}, "bounds": bounds}
    assert read_bounds(told) is None
    assert read_bounds(told | {"bounds": [0, 1]}) == (0, 1)
