"""The noise of pairs: measured if possible, else assumed, and never from an arm's effect."""

import math

import numpy as np
import pytest
from labs import HEADER, declared, lab_in, with_runs

from truing.lab.run.design import BASELINE, resolve_arm
from truing.lab.stats.noise import assumed_noise, noise_of
from truing.lab.stats.power import evaluation_noise, training_noise

OTHER = HEADER.replace("2e-3", "3e-3")


@pytest.fixture
def lab(tmp_path):
    return lab_in(tmp_path, {"h01": HEADER, "h02": OTHER}, "family = 2")


def declared_with_runs(lab, name, values):
    hypothesis = lab.hypothesis(name)
    return with_runs(declared(lab, hypothesis), hypothesis, {"changed": values})


def noise(lab, name):
    hypothesis = lab.hypothesis(name)
    return noise_of(lab, lab.hypotheses[name], hypothesis.header)


def test_assumed_before_the_first_run(lab):
    estimate = noise(lab, "h01")
    assert estimate.deviation == evaluation_noise(4, 1)
    assert "4 evaluation tasks × 1" in estimate.source
    assert not estimate.measured


def with_tasks(lab, tasks):
    recipe = resolve_arm(lab, BASELINE, ()).recipe
    return recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"tasks": tasks})})


def test_a_recipe_without_a_number_of_tasks_has_the_default(lab):
    estimate = assumed_noise(with_tasks(lab, None), "eval/reward")
    assert estimate.deviation == evaluation_noise(128, 1)
    assert "128 evaluation tasks × 1" in estimate.source


def test_without_an_evaluation_its_noise_is_unknown(lab):
    estimate = assumed_noise(with_tasks(lab, 0), "eval/reward")
    assert math.isnan(estimate.deviation)
    assert "eval.tasks = 0" in estimate.source


def test_measured_by_its_own_pairs(lab):
    values = [0.1, 0.4, -0.2, 0.9]
    estimate = noise(declared_with_runs(lab, "h01", values), "h01")
    assert estimate.deviation == pytest.approx(np.std(values, ddof=1))
    assert estimate.source == "4 pairs of h01"
    assert estimate.measured


def test_two_pairs_are_too_few(lab):
    assert not noise(declared_with_runs(lab, "h01", [0.1, 0.4]), "h01").measured


def test_measured_by_pairs_of_an_arm_that_does_nothing(lab):
    values = [0.1, -0.4, 0.2, 0.3, -0.1]
    estimate = noise(declared_with_runs(lab, "h01", values), "h02")
    assert estimate.deviation == pytest.approx(np.std(values, ddof=1))
    assert estimate.source == "5 pairs of arms without an effect"
    assert estimate.measured


@pytest.mark.parametrize("sign", [1, -1])
def test_what_an_arm_does_is_no_noise_of_another(lab, sign):
    """Eight pairs that prove an effect at an error of 0.05 ÷ 3 are no noise of another arm."""
    proven = declared_with_runs(lab, "h01", [sign * (1.0 + 0.1 * i) for i in range(8)])
    assert not noise(proven, "h02").measured
    assert noise(proven, "h01").measured


def test_its_own_pairs_count_whatever_they_show(lab):
    estimate = noise(declared_with_runs(lab, "h01", [5.0] * 8), "h01")
    assert math.isnan(estimate.deviation), "that they are equal is not to say that there is no noise"
    assert "equal" in estimate.source
    assert estimate.measured


def test_arms_are_center_each_about_its_own_mean(tmp_path):
    both = HEADER + 'second = ["grpo.learning_rate=4e-3"]\n'
    lab = lab_in(tmp_path, {"h01": both})
    hypothesis = lab.hypothesis("h01")
    first, second = [0.0, 0.2, 0.4], [9.0, 9.4, 9.2]
    lab = with_runs(declared(lab, hypothesis), hypothesis, {"changed": first, "second": second})
    pooled = math.sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / 2)
    estimate = noise(lab, "h01")
    assert estimate.deviation == pytest.approx(pooled)
    assert estimate.source == "6 pairs of h01"


def test_pairs_that_lack_the_metric_or_have_no_number_tell_nothing(lab):
    for value in (math.nan, math.inf):
        estimate = noise(declared_with_runs(lab, "h01", [0.1, 0.2, value, 0.3]), "h01")
        assert estimate.deviation == evaluation_noise(4, 1)
        assert not estimate.measured


def test_unbiased_on_average():
    """The mean square of what is pooled is the variance of the draws, however few pairs an arm has."""
    from truing.lab.stats.noise import _center

    r = np.random.default_rng(2)
    squares = [np.mean(np.square(_center(r.normal(7, 2, 3)))) for _ in range(4000)]
    assert np.mean(squares) == pytest.approx(4, rel=0.06)


def test_the_reward_of_training_is_guessed_by_its_last_quarter(lab):
    recipe = resolve_arm(lab, BASELINE, (), ["grpo.steps=40"]).recipe
    estimate = assumed_noise(recipe, "reward/mean")
    assert estimate.deviation == training_noise(4, 4, 10)
    assert "the last 10 of 40 steps" in estimate.source
    short = assumed_noise(resolve_arm(lab, BASELINE, ()).recipe, "reward/mean")
    assert short.deviation == training_noise(4, 4, 1)


def test_other_metrics_have_no_assumed_noise(lab):
    recipe = resolve_arm(lab, BASELINE, ()).recipe
    estimate = assumed_noise(recipe, "length/mean")
    assert math.isnan(estimate.deviation)
    assert "the noise of length/mean is unknown" in estimate.source
