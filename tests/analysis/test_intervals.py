"""Intervals of means: what each supposes, and that it then covers the truth as often as it says."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats
from shown import evaluation as told_evaluation

from truing.analysis import intervals
from truing.analysis.estimate import Estimate, Interval, read_estimate
from truing.analysis.evaluation import Evaluation
from truing.analysis.intervals import bounded_interval, interval, is_significant, student_interval
from truing.analysis.paired_difference import MIN_DIFFERING_TASKS, _conclusion

DRAWS = 200


def evaluation(rewards, bounds=(0.0, 1.0)):
    reward = {f"task-{i}": float(each) for i, each in enumerate(rewards)}
    return Evaluation("x", reward, {}, {}, {}, bounds)


# Gains of rewards between 0 and 1: before and after of each task, and the true gain.


def normal(rng, tasks):
    base = np.clip(rng.normal(0.5, 0.15, tasks), 0.05, 0.95)
    return base, np.clip(base + rng.normal(0.0, 0.15, tasks), 0, 1)


def rare(rng, tasks):
    """One answer in twenty turns right."""
    base = np.zeros(tasks)
    return base, (rng.random(tasks) < 0.05).astype(float)


def skewed(rng, tasks):
    """Most tasks gain a little, and one in ten loses all."""
    lost = rng.random(tasks) < 0.1
    base = np.where(lost, 1.0, 0.5)
    return base, np.where(lost, 0.0, 0.6)


def outcomes(rng, tasks):
    base = (rng.random(tasks) < 0.4).astype(float)
    return base, np.where(rng.random(tasks) < 0.3, (rng.random(tasks) < 0.5).astype(float), base)


def partial(rng, tasks):
    return rng.beta(0.2, 0.2, tasks), rng.beta(0.3, 0.2, tasks)


GAINS = {"normal": normal, "rare": rare, "skewed": skewed, "outcomes": outcomes, "partial": partial}


@cache
def truth(draw):
    before, after = draw(np.random.default_rng(99), 1_000_000)
    return float((after - before).mean())


@pytest.mark.integration
@pytest.mark.parametrize("kind", GAINS)
@pytest.mark.parametrize("tasks", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 16))])
def test_a_gain_is_covered_as_often_as_it_says(kind, tasks):
    """At least 0.95 of 200 draws, less three standard errors; a bootstrap covers 0.2 to 0.9 of these."""
    draw, covered = GAINS[kind], 0
    expected = truth(draw)
    for seed in range(DRAWS):
        before, after = draw(np.random.default_rng([seed, tasks]), tasks)
        result = evaluation(after).gain_over(evaluation(before))
        covered += result.low <= expected <= result.high
    assert covered / DRAWS >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / DRAWS)


@pytest.mark.parametrize(("kind", "tasks"), [("rare", 16), ("skewed", 8), ("normal", 4)])
def test_the_draws_are_such_that_a_bootstrap_does_not(kind, tasks):
    draw, covered = GAINS[kind], 0
    expected = truth(draw)
    for seed in range(DRAWS):
        rng = np.random.default_rng([seed, tasks])
        before, after = draw(rng, tasks)
        means = rng.choice(after - before, (500, tasks)).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        covered += low <= expected <= high
    assert covered / DRAWS < 0.9


def test_a_gain_of_outcomes_is_reported_where_the_exact_sign_test_finds_one():
    for up in range(12):
        for down in range(up + 1):
            data = [1.0] * up + [-1.0] * down + [0.0] * 9
            result = bounded_interval(data, (-1.0, 1.0))
            tested = stats.binomtest(up, up + down, alternative="greater").pvalue if up else 1.0
            assert (result.low > 0) == (tested <= 0.025), (up, down)


def test_bounds_of_a_gain_are_the_differences_of_what_can_be_earned():
    first, second = evaluation([0.0] * 9, (0.0, 1.0)), evaluation([2.0] * 9, (-1.0, 3.0))
    assert second.gain_over(first) == bounded_interval([2.0] * 9, (-2.0, 3.0))


def test_a_mirror_image_has_the_mirrored_interval():
    data = np.random.default_rng(0).uniform(-1, 1, 30).tolist()
    result, turned = (
        bounded_interval(data, (-1.0, 1.0)),
        bounded_interval([-each for each in data], (-1.0, 1.0)),
    )
    assert (result.low, result.high) == pytest.approx((-turned.high, -turned.low), abs=1e-9)


@pytest.mark.parametrize("kind", ["uniform", "rare", "equal"])
def test_of_many_tasks_the_approximation_is_the_exact_bound(kind, monkeypatch):
    rng = np.random.default_rng(4)
    data = {"uniform": rng.random(600), "rare": (rng.random(600) < 0.005) * 1.0, "equal": np.zeros(600)}
    fast = bounded_interval(data[kind].tolist(), (0.0, 1.0))
    monkeypatch.setattr(intervals, "MAX_EXACT_TASKS", 10**6)
    exact = bounded_interval(data[kind].tolist(), (0.0, 1.0))
    assert (fast.low, fast.high) == pytest.approx((exact.low, exact.high), abs=1e-4)


@pytest.mark.parametrize("tasks", [20_000, 200_000])
def test_of_very_many_tasks_it_is_the_interval_of_clopper_and_pearson(tasks):
    result = bounded_interval([1.0] * 3 + [0.0] * (tasks - 3), (0.0, 1.0))
    exact = stats.binomtest(3, tasks).proportion_ci(method="exact")
    assert (result.low, result.high) == pytest.approx((exact.low, exact.high), rel=0.01)


# Where nobody knows what can be earned.


@pytest.mark.integration
@pytest.mark.parametrize("tasks", [2, 4, 16, 64])
def test_of_normal_gains_students_interval_covers_as_often_as_it_says(tasks):
    rng = np.random.default_rng(tasks)
    results = [student_interval(rng.normal(0.3, 2.0, tasks).tolist()) for _ in range(2000)]
    covered = np.mean([each.low <= 0.3 <= each.high for each in results])
    assert abs(covered - 0.95) <= 3.5 * math.sqrt(0.95 * 0.05 / 2000)


def test_what_an_interval_supposes_is_said_with_it():
    values = [0.1, 0.4, 0.2]
    assert str(interval(values, None)) == f"{student_interval(values)}"
    assert "(assumes normal rewards) of 3 tasks" in str(interval(values, None))
    assert "(if" not in str(interval(values, (0.0, 1.0)))
    assert "(assumes normal rewards)" in interval(values, None).signed
    assert str(Interval(0.5, math.nan, math.nan, supposes="normal rewards")) == "0.500"


@pytest.mark.parametrize("values", [[0.5], [0.5] * 7])
def test_without_bounds_equal_values_say_nothing(values):
    assert math.isnan(student_interval(values).low)


def test_an_interval_of_an_earlier_version_says_that_it_was_a_bootstrap():
    result = told_evaluation("x", 0.5)
    assert read_estimate(result).supposes == "many tasks"
    assert read_estimate(result | {"bounds": [0.0, 1.0]}).supposes == ""
    assert math.isnan(read_estimate({"estimate": {"mean": 0.5, "low": 0.5, "high": 0.5}}).low)


# Verdicts between two runs.

ALIKE = {
    "normal": lambda rng, tasks: rng.normal(size=tasks),
    "signs": lambda rng, tasks: rng.choice([-1.0, 1.0], tasks),
    "thirds": lambda rng, tasks: rng.choice([-1.0, 0.0, 1.0], tasks),
    "tails": lambda rng, tasks: rng.standard_cauchy(tasks),
}


@pytest.mark.integration
@pytest.mark.parametrize("kind", ALIKE)
@pytest.mark.parametrize("tasks", [4, 6, 7, 8, 20])
def test_one_of_two_equal_runs_is_seldom_called_better(kind, tasks):
    """Nobody knows what can be earned; at 6 tasks with normal scores a bootstrap calls 14 % better."""
    rng, wrong = np.random.default_rng(tasks), 0
    for _ in range(DRAWS):
        apart = ALIKE[kind](rng, tasks).tolist()
        wrong += "better" in _conclusion(student_interval(apart), apart)
    assert wrong / DRAWS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["thirds", "signs"])
@pytest.mark.parametrize("tasks", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (12, 20))])
def test_within_bounds_one_of_two_equal_runs_is_seldom_called_better(kind, tasks):
    rng, wrong = np.random.default_rng(tasks), 0
    for _ in range(DRAWS):
        apart = ALIKE[kind](rng, tasks).tolist()
        wrong += "better" in _conclusion(bounded_interval(apart, (-1.0, 1.0)), apart)
    assert wrong / DRAWS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)


def test_a_clear_gain_is_reported():
    apart = [0.5, 0.6, 0.4, 0.55, 0.45, 0.5, 0.52, 0.48]
    supposed = ", if differences are symmetric"
    assert _conclusion(student_interval(apart), apart) == "the second is better" + supposed
    assert _conclusion(student_interval([-each for each in apart]), [-each for each in apart]) == (
        "the first is better" + supposed
    )
    assert (
        _conclusion(student_interval([0.5] * MIN_DIFFERING_TASKS), [0.5] * MIN_DIFFERING_TASKS)
        == "the second is better" + supposed
    )
    assert (
        _conclusion(bounded_interval([1.0] * MIN_DIFFERING_TASKS, (-1.0, 1.0)), [1.0] * MIN_DIFFERING_TASKS)
        == "the second is better"
    )


def test_students_interval_alone_proves_no_difference():
    """Of six signs of seven, one way or the other, there are 16 in 128: 12.5 % of equal runs."""
    apart = [1.0] * 6 + [-1.0]
    assert student_interval(apart).low > 0
    assert not is_significant(student_interval(apart), apart)
    many = [1.0] * 1500 + [-1.0] * 1000
    assert is_significant(student_interval(many), many)
    assert not is_significant(Estimate(0.1, -0.1, 0.3, 9, None), [0.1] * 9)


def rarely_all_is_lost(rng, tasks):
    return np.where(rng.random(tasks) < 0.1, -0.9, 0.1).tolist()


@pytest.mark.parametrize("tasks", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (16, 64))])
def test_of_skewed_gains_of_mean_zero_nothing_is_said_without_a_condition(tasks):
    """Without bounds six in ten are called better at 6 tasks, and it is said what that supposes."""
    rng, bare, conditional = np.random.default_rng(tasks), 0, 0
    for _ in range(DRAWS):
        apart = rarely_all_is_lost(rng, tasks)
        says = (
            _conclusion(bounded_interval(apart, (-1.0, 1.0)), apart),
            _conclusion(student_interval(apart), apart),
        )
        bare += sum(each.endswith("is better") for each in says)
        conditional += says[1].endswith("if differences are symmetric")
    assert bare / DRAWS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)
    assert conditional / DRAWS > (0.3 if tasks == 6 else 0.0)
