"""What an experiment sees, and why it is refused where that is not enough."""

import math
import tomllib

import pytest
from labs import HEADER

from truing.lab.stats.e_process import min_pairs
from truing.lab.stats.noise import Noise
from truing.lab.stats.power import min_detectable_excess
from truing.lab.stats.sensitivity import min_detectable_effect, why_underpowered
from truing.lab.store.hypothesis_file import Header

UNKNOWN = Noise(math.nan, "unknown", False)
QUIET = Noise(0.1, "8 pairs of h01", True)
SIGNS = {}  # no bound on the size of differences
GUESSED = Noise(0.6, "assumed from 4 evaluation tasks × 1; nothing was measured yet", False)


def header(**facts):
    return Header.model_validate(tomllib.loads(HEADER) | facts)


def criterion(**facts):
    return {"metric": "eval/reward", **facts}


def test_the_detectable_effect_is_the_bound_plus_the_detectable_excess():
    plain = header()
    assert min_detectable_effect(plain, QUIET, 0.05, SIGNS) == pytest.approx(
        min_detectable_excess(0.1, 10, 0.05)
    )
    beyond = header(confirm=[criterion(arm="changed", above=0.2)])
    assert min_detectable_effect(beyond, QUIET, 0.05, SIGNS) == pytest.approx(
        0.2 + min_detectable_excess(0.1, 10, 0.05)
    )
    lower = header(confirm=[criterion(arm="changed", below=-0.2)])
    assert min_detectable_effect(lower, QUIET, 0.05, SIGNS) == min_detectable_effect(
        beyond, QUIET, 0.05, SIGNS
    )


def test_no_worse_than_a_little_is_detected_at_once():
    lenient = header(confirm=[criterion(arm="changed", above=-5.0)])
    assert min_detectable_effect(lenient, QUIET, 0.05, SIGNS) == 0


def test_of_several_bounds_the_hardest_counts_and_only_of_the_metric():
    several = header(
        confirm=[
            criterion(arm="changed", above=0.0),
            criterion(arm="changed", above=0.3),
            {"metric": "length/mean", "arm": "changed", "below": -9.0},
        ]
    )
    assert min_detectable_effect(several, QUIET, 0.05, SIGNS) == pytest.approx(
        0.3 + min_detectable_excess(0.1, 10, 0.05)
    )


def test_the_detectable_effect_is_unknown_without_a_noise_estimate():
    assert math.isnan(min_detectable_effect(header(), UNKNOWN, 0.05, SIGNS))


def test_too_few_pairs_see_nothing():
    assert min_detectable_effect(header(seeds=min_pairs(0.05) - 1), QUIET, 0.05, SIGNS) == math.inf


def test_arms_of_which_any_may_confirm_share_the_error():
    arms = {"a": ["grpo.learning_rate=2e-3"], "b": ["grpo.learning_rate=3e-3"]}
    anyone = {"confirm": [criterion(above=0.0)], "refute": [criterion(below=0.5)], "arms": arms}
    named = {"confirm": [criterion(arm="a", above=0.0)], "refute": [criterion(below=0.5)], "arms": arms}
    assert min_detectable_effect(header(**anyone), QUIET, 0.05, SIGNS) == min_detectable_effect(
        header(**named), QUIET, 0.025, SIGNS
    )
    assert min_detectable_effect(header(**anyone), QUIET, 0.05, SIGNS) > min_detectable_effect(
        header(**named), QUIET, 0.05, SIGNS
    )


def test_an_experiment_that_decides_is_not_refused():
    assert why_underpowered(header(), QUIET, 0.05, SIGNS) == ("", "")
    assert why_underpowered(header(), UNKNOWN, 0.05, SIGNS) == ("", "")


def test_refused_for_too_few_seeds():
    refused, would = why_underpowered(header(seeds=4), QUIET, 0.0125, SIGNS)
    assert "4 pairs prove nothing" in refused
    assert "0.013" in refused
    assert would == f"seeds = {min_pairs(0.0125)} or more"


def test_refused_for_a_bound_that_the_effect_that_matters_never_passes():
    refused, would = why_underpowered(
        header(confirm=[criterion(arm="changed", above=0.5)]), QUIET, 0.05, SIGNS
    )
    assert "0.5 is never proven to be beyond a bound of 0.5" in refused
    assert "below smallest_effect" in would


def test_refused_for_noise_that_was_guessed():
    """Seeds, tasks or a larger effect would do; each of them, taken at its word, does."""
    asked = header(seeds=6)
    refused, would = why_underpowered(asked, GUESSED, 0.05, SIGNS)
    assert "with 6 pairs it detects" in refused
    assert "assumed from 4 evaluation tasks" in refused
    assert "the smallest effect of interest is 0.5" in refused
    seeds, tasks, effect = would.split(", or ", 1)[0], would, would.rsplit(" = ", 1)[1]
    assert why_underpowered(header(seeds=int(seeds.removeprefix("seeds = "))), GUESSED, 0.05, SIGNS) == (
        "",
        "",
    )
    assert "× the evaluation tasks (eval.tasks), or answers to each" in tasks
    times = int(tasks.split(" × the")[0].rsplit(" ", 1)[1])
    quieter = Noise(GUESSED.deviation / math.sqrt(times), "", False)
    assert why_underpowered(asked, quieter, 0.05, SIGNS) == ("", "")
    assert why_underpowered(header(seeds=6, smallest_effect=float(effect)), GUESSED, 0.05, SIGNS) == ("", "")


def test_more_tasks_are_no_remedy_for_noise_that_was_measured():
    _, would = why_underpowered(header(seeds=6), Noise(0.6, "6 pairs of h01", True), 0.05, SIGNS)
    assert "tasks" not in would
    assert would.startswith("seeds = ")


def test_prompts_are_the_remedy_where_the_reward_is_of_training():
    about = {"metric": "reward/mean", "arm": "changed"}
    asked = header(metric="reward/mean", seeds=6, confirm=[{**about, "above": 0.0}])
    assert "× the prompts" in why_underpowered(asked, GUESSED, 0.05, SIGNS)[1]


def test_seeds_are_no_remedy_where_no_number_of_them_is_enough():
    _, would = why_underpowered(header(smallest_effect=0.001), QUIET, 0.05, SIGNS)
    assert "seeds" not in would
    assert would.startswith("smallest_effect = ")
