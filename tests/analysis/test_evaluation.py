"""Intervals of an evaluation: against a second implementation, a closed form, and what they promise."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats

from truing.analysis.estimate import pass_at_json, read_pass_at
from truing.analysis.evaluation import Evaluation, read_bounds, read_evaluation
from truing.analysis.intervals import bounded_interval, student_interval
from truing.errors import DataError

RNG = np.random.default_rng(0)
SCORES = RNG.beta(0.5, 0.5, 60).tolist()


def evaluation(name, rewards, bounds=None, samples=1):
    reward = {f"task-{i}": reward for i, reward in enumerate(rewards)}
    return Evaluation(name, reward, {}, {task: [""] * samples for task in reward}, {}, bounds)


def interval(estimate):
    return estimate.low, estimate.high


def test_a_gain_is_paired():
    """Every task gains 0.1: unpaired, the spread between tasks would hide it."""
    before = evaluation("before", SCORES)
    after = evaluation("after", [score + 0.1 for score in SCORES])
    gain = after.gain_over(before)
    assert gain.mean == pytest.approx(0.1)
    assert math.isnan(gain.low), "all gained the same, and nobody knows what others may"
    within = [evaluation("x", scores, (0.0, 1.1)) for scores in (SCORES, [score + 0.1 for score in SCORES])]
    assert 0 < within[1].gain_over(within[0]).high - 0.1 < 0.1


def test_a_gain_pairs_by_task_and_not_by_order():
    before = Evaluation("before", {"a": 0.0, "b": 1.0}, {}, {}, {}, None)
    after = Evaluation("after", {"b": 1.0, "a": 0.0}, {}, {}, {}, None)
    assert after.gain_over(before).mean == 0.0


def test_evaluations_of_different_tasks_have_no_difference():
    with pytest.raises(DataError, match="different tasks") as error:
        evaluation("after", SCORES).gain_over(evaluation("before", SCORES[:-1]))
    assert error.value.got == ["task-59"]


@pytest.mark.parametrize(("right", "tasks"), [(0, 200), (1, 200), (86, 200), (200, 200), (3, 8), (0, 2)])
def test_of_outcomes_it_is_the_interval_of_clopper_and_pearson(right, tasks):
    """A second implementation: scipy's, by the binomial distribution."""
    result = evaluation("x", [1.0] * right + [0.0] * (tasks - right), (0.0, 1.0)).estimate()
    exact = stats.binomtest(right, tasks).proportion_ci(method="exact")
    assert interval(result) == pytest.approx(interval(exact), abs=1e-6)
    assert (result.mean, result.tasks) == (right / tasks, tasks)


def test_where_all_tasks_earned_the_same_others_may_earn_anything_else():
    """By hand: 1 − 0.025^(1/16) = 0.20591 of all tasks may differ, and earn the least or the most."""
    result = evaluation("x", [0.3] * 16, (0.0, 1.0)).estimate()
    assert interval(result) == pytest.approx((0.3 - 0.20591 * 0.3, 0.3 + 0.20591 * 0.7), abs=1e-5)
    twice = evaluation("x", [0.6] * 16, (0.0, 2.0)).estimate()
    assert interval(twice) == pytest.approx([2 * each for each in interval(result)], abs=1e-5)


def test_one_task_that_earns_a_little_makes_no_narrower_interval():
    """Student's would be a fifth of what it is without that task."""
    none, one = (evaluation("x", [0.0] * 199 + [reward], (0.0, 1.0)).estimate() for reward in (0.0, 0.25))
    assert one.high > none.high > 4 * student_interval([0.0] * 199 + [0.25]).high


DRAWN = {
    "rare": lambda rng: (rng.random(20) < 0.02).astype(float),
    "partial": lambda rng: np.where(rng.random(20) < 0.05, 1.0, 0.1 * rng.random(20)),
    "usual": lambda rng: rng.beta(0.5, 0.5, 20),
}
MEANS = {"rare": 0.02, "partial": 0.05 + 0.95 * 0.05, "usual": 0.5}


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "missed"), [("rare", 0.6), ("partial", 0.3), ("usual", 0.02)])
def test_within_bounds_it_covers_the_truth_as_often_as_it_says(kind, missed):
    """Of 200 draws of 20 tasks; Student's misses at least so many, so that the draws are hard ones."""
    draws = [DRAWN[kind](np.random.default_rng(seed)).tolist() for seed in range(200)]
    within = [bounded_interval(values, (0.0, 1.0)) for values in draws]
    assert np.mean([each.low <= MEANS[kind] <= each.high for each in within]) >= 0.935
    normal = [student_interval(values) for values in draws]
    assert np.mean([not each.low <= MEANS[kind] <= each.high for each in normal]) >= missed


def test_where_nobody_knows_what_tasks_can_earn_only_their_spread_says_anything():
    equal = evaluation("x", [16.0] * 5).estimate()
    assert math.isnan(equal.low)
    assert math.isnan(equal.high)
    assert str(equal) == "16.000 of 5 tasks"
    assert interval(evaluation("x", SCORES).estimate()) == interval(student_interval(SCORES))


def test_a_gain_of_nothing_has_an_interval_where_bounds_are_known():
    none = evaluation("x", [0.0] * 200, (0.0, 1.0))
    gain = none.gain_over(none)
    most = stats.binomtest(0, 200).proportion_ci(method="exact").high
    assert (gain.mean, gain.low, gain.high) == pytest.approx((0.0, -most, most), abs=1e-6)
    mixed = evaluation("y", [0.0, 1.0] * 100, (0.0, 1.0))
    assert mixed.gain_over(none) == bounded_interval([0.0, 1.0] * 100, (-1.0, 1.0))


def test_an_earlier_record_does_not_say_what_can_be_earned():
    facts = {"name": "x", "reward": {"a": 0.0}, "parts": {}, "answers": {}, "failed": {}}
    assert read_evaluation(facts).bounds is None
    assert read_evaluation(facts | {"bounds": [0.0, 1.5]}).bounds == (0.0, 1.5)


def test_an_estimate_is_printed_with_its_interval_and_what_it_rests_on():
    assert str(evaluation("x", [0.5, 0.5]).estimate()) == "0.500 of 2 tasks"
    assert str(evaluation("x", [0.0] * 200, (0.0, 1.0)).estimate()) == "0.000 [0.000, 0.018] of 200 tasks"
    several = evaluation("x", [0.25, 0.5, 0.75], samples=4).estimate()
    assert str(several) == "0.500 [-0.121, 1.121] (assumes normal rewards) of 3 tasks × 4"


@pytest.mark.parametrize(
    "bounds",
    [None, "x", [1.0], [1.0, 0.0], [0.2, 1.0], [-5.0, -6.0], [float("nan"), 1.0], [0.0, float("inf")]],
)
def test_bounds_that_do_not_hold_what_was_earned_are_not_known(bounds):
    facts = {"reward": {"a": 0.0, "b": 1.0}, "bounds": bounds}
    assert read_bounds(facts) is None
    assert read_bounds(facts | {"bounds": [0, 1]}) == (0, 1)


# pass@k.


def several(counts, answers=4, **facts):
    """Tasks of which so many of four answers pass."""
    earned = {f"t{i}": [1.0] * c + [0.25] * (answers - c) for i, c in enumerate(counts)}
    reward = {task: sum(each) / len(each) for task, each in earned.items()}
    given = {"bounds": (0.0, 1.0), "earned": earned, "passes_at": 1.0} | facts
    return Evaluation("x", reward, {}, {task: [""] * answers for task in reward}, {}, **given)


def test_pass_at_k_is_a_mean_over_tasks_with_the_interval_of_one():
    result = several([0, 1, 4, 2]).pass_at()
    assert list(result) == [1, 2, 4]
    assert result[2].mean == pytest.approx((0 + 0.5 + 1 + 5 / 6) / 4)
    assert result[4] == bounded_interval([0.0, 1.0, 1.0, 1.0], (0.0, 1.0), 4)


def test_an_answer_passes_from_a_reward_on():
    assert several([0, 1]).pass_at()[1].mean == pytest.approx(1 / 8)
    assert several([0, 1], passes_at=0.25).pass_at()[1].mean == 1
    assert several([0, 1], passes_at=1.0 + 1e-12).pass_at()[1].mean == pytest.approx(1 / 8), "sums round"


@pytest.mark.parametrize("facts", [{"passes_at": None}, {"earned": {}}, {"answers": 1}])
def test_pass_at_k_is_left_out_where_it_cannot_be_determined(facts):
    assert several([0, 1], **facts).pass_at() == {}


def test_rollouts_that_failed_leave_fewer_to_choose_from():
    some = several([1, 1])
    fewer = replace(some, earned={"t0": [1.0, 0.0, 0.0], "t1": [1.0, 0.0, 0.0, 0.0]})
    assert list(fewer.pass_at()) == [1, 2, 3]


def test_gains_of_pass_at_k_are_paired():
    before, after = several([0, 1, 2, 0]), several([1, 1, 4, 0])
    result = after.pass_at_gains(before)
    assert result[1].mean == pytest.approx((1 / 4 + 0 + 2 / 4 + 0) / 4)
    assert result[4] == bounded_interval([1.0, 0.0, 0.0, 0.0], (-1.0, 1.0))
    assert several([0, 1], earned={}).pass_at_gains(several([0, 1])) == {}


@pytest.mark.integration
def test_pass_at_k_covers_the_truth_as_often_as_it_says():
    """Tasks of chances that differ, four answers each: the mean over tasks of 1 − (1 − p)²."""
    rng, covered = np.random.default_rng(3), 0
    truth = float((1 - (1 - rng.beta(0.3, 1.5, 10**6)) ** 2).mean())
    for _ in range(200):
        result = several(rng.binomial(4, rng.beta(0.3, 1.5, 12))).pass_at()[2]
        covered += result.low <= truth <= result.high
    assert covered / 200 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 200)


def test_an_event_reports_pass_at_k_and_an_earlier_one_does_not():
    result = asdict(several([0, 1]))
    assert read_evaluation(result) == several([0, 1])
    earlier = {name: value for name, value in result.items() if name not in ("earned", "passes_at")}
    assert read_evaluation(earlier).pass_at() == {}
    event = {"pass_at": pass_at_json(several([0, 1]).pass_at())}
    assert read_pass_at(event) == several([0, 1]).pass_at()
    assert read_pass_at({}) == {}
