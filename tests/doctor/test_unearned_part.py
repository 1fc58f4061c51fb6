"""A part of the reward that no rollout earns, while the others are driven."""

import pytest

from truing.doctor.rules.rwd006 import PART_STEPS, RULE, bonus_alone
from truing.doctor.verdict import Verdict

WEIGHTS = {"exact": 1.0, "length": 0.1}


def claims(step):
    return list(RULE.judge(step))


def test_a_main_part_that_is_always_0_cannot_be_told_from_tasks_that_are_too_hard():
    (claim,) = claims(bonus_alone(WEIGHTS))
    assert claim.verdict is Verdict.CANNOT_TELL
    assert f"no rollout of the stage's {PART_STEPS} steps earned anything of exact" in claim.what
    assert "the policy learns the other parts" in claim.what


@pytest.mark.parametrize(
    "step",
    [
        bonus_alone(WEIGHTS, earned=0.02),
        bonus_alone(WEIGHTS, shaping=("exact",)),
        bonus_alone({"exact": 0.1, "length": 1.0}),
        bonus_alone({"exact": 0.0, "length": 0.1}),
        bonus_alone({}),
    ],
    ids=["it is earned at times", "it shapes only", "another weighs more", "it has no weight", "unknown"],
)
def test_other_parts_that_are_0_are_no_finding(step):
    assert claims(step) == []


def test_too_few_steps_say_nothing():
    step = bonus_alone(WEIGHTS)
    assert claims(step.__class__(**{**vars(step), "past": step.past[1:]})) == []
