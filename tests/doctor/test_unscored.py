"""Rollouts that no reward function scores are counted; demonstrations have nothing to be scored."""

import math

import pytest

from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rules import RULES
from truing.doctor.verdict import Verdict

UNSCORED, FAILED = {"reward": math.nan}, {"reward": math.nan, "status": "error"}


def claims(rows, **streams):
    step = changed_step(example_step(rewards=(1.0,) * 8), samples=rows, tokens=streams)
    return [found.claim for found in Diagnosis(select_rules(["RWD003"], [])).add(step)]


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (dict.fromkeys(range(4), UNSCORED), "4 were scored by no reward function"),
        (dict.fromkeys(range(3), FAILED), "3 failed"),
        ({0: FAILED, 1: FAILED, 2: UNSCORED}, "2 failed, 1 were scored by no reward function"),
        (dict.fromkeys(range(8), UNSCORED) | {7: {}}, "7 were scored by no reward function"),
    ],
)
def test_rollouts_without_a_reward_are_counted_by_their_cause(rows, counts):
    (claim,) = claims(rows)
    assert claim.verdict is Verdict.SUSPECT
    assert claim.what.endswith(f": {counts}")


def test_two_of_eight_are_not_many():
    assert claims(dict.fromkeys(range(2), UNSCORED)) == []


def test_demonstrations_in_a_batch_of_a_policy_are_not_rollouts():
    step = example_step()
    demo_N = step.tokens["policy_mask"] & (step.sample_of_token < 3)
    streams = {"policy_mask": step.tokens["policy_mask"] & ~demo_N, "supervised_mask": demo_N}
    assert claims(dict.fromkeys(range(3), UNSCORED), **streams) == []


def test_equal_rewards_say_how_many_rows_have_none():
    step = RULES["RWD006"].example()
    step = changed_step(step, samples=dict.fromkeys(range(4), UNSCORED))
    (found,) = Diagnosis(select_rules(["RWD006"], [])).add(step)
    assert "4 samples of this step have no reward" in found.claim.got
