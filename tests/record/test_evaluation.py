"""The paired bootstrap: against a second implementation, a closed form, and what an interval promises."""

import numpy as np
import pytest

from truing.errors import DataError
from truing.record import evaluation as module
from truing.record.evaluation import Evaluation, bootstrap

RNG = np.random.default_rng(0)
SCORES = RNG.beta(0.5, 0.5, 60).tolist()


def slow_bootstrap(values, resamples=4000):
    """Resample one by one with another generator, and read the percentiles off the sorted means."""
    rng = np.random.default_rng(7)
    means = sorted(sum(rng.choice(values, len(values))) / len(values) for _ in range(resamples))
    return means[round(0.025 * resamples)], means[round(0.975 * resamples) - 1]


def evaluation(name, rewards):
    return Evaluation(name, {f"task-{i}": reward for i, reward in enumerate(rewards)}, {}, {}, {})


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
    before = Evaluation("before", {"a": 0.0, "b": 1.0}, {}, {}, {})
    after = Evaluation("after", {"b": 1.0, "a": 0.0}, {}, {}, {})
    assert after.gain_over(before).mean == after.gain_over(before).high == 0.0


def test_evaluations_of_different_tasks_have_no_difference():
    with pytest.raises(DataError, match="different tasks") as error:
        evaluation("after", SCORES).gain_over(evaluation("before", SCORES[:-1]))
    assert error.value.got == ["task-59"]


def test_an_estimate_is_printed_with_its_interval():
    assert str(bootstrap([0.5, 0.5], "x")) == "0.500 [0.500, 0.500]"
