"""RWD002: rewards that are not what their answers earn, by what explains them."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from truing.doctor.rules.rwd002 import REWARDS, RULE, example, group_paid, other_than_graded
from truing.doctor.verdict import Verdict
from truing.errors import RewardCrash
from truing.measurements.regraded import FURTHER, regraded, rollouts_to_regrade
from truing.rewards import GradeResult


def judged(step):
    return list(RULE.judge(step))


def test_the_value_of_a_group_that_every_rollout_is_paid_is_proven():
    (claim,) = judged(group_paid())
    assert claim.verdict is Verdict.PROVEN
    assert claim.what == "8 of 8 rollouts have the mean of their group's rewards"


def test_a_group_of_which_a_rollout_was_not_graded_again_explains_nothing():
    step = group_paid()
    facts = {**step.facts, "regraded": step.facts["regraded"][:-1]}
    part = replace(step, facts=facts)
    groups = {row.group_id for row in step.samples}
    (claim,) = judged(part)
    assert claim.verdict is (Verdict.SUSPECT)  # seven differ: fewer than anybody proves something of
    assert len(groups) >= 1


def test_rewards_of_other_rows_are_reported_as_those():
    (claim,) = judged(example())
    assert claim.verdict is Verdict.PROVEN
    assert f"{len(REWARDS)} of {len(REWARDS)} rewards are on other rows" in claim.what


def test_a_stored_reward_that_no_further_grading_gives_has_odds():
    (claim,) = judged(other_than_graded())
    assert claim.verdict is Verdict.EVIDENCE
    assert claim.log10_odds == pytest.approx(6.0)
    assert claim.what.startswith(
        "6 of 6 answers get another reward when graded again, and further gradings agree"
    )


@pytest.mark.parametrize("further", [[0.75] * 7 + [0.5], [0.5] * 8, [0.75] * 7 + [math.nan]])
def test_where_the_stored_reward_is_not_the_only_odd_one_the_grader_is_suspect(further):
    step = other_than_graded()
    facts = [each | {"stored": 0.5, "again": 0.75, "further": further} for each in step.facts["regraded"]]
    (claim,) = judged(replace(step, facts={"regraded": facts}))
    assert claim.verdict is Verdict.SUSPECT


def test_a_grading_that_is_unlike_all_others_and_the_stored_one_ends_the_odds():
    step = other_than_graded()
    noisy = {"sample_id": "s7", "stored": 0.5, "again": 0.75, "further": [0.5] * 8}
    facts = [*step.facts["regraded"], *step.facts["regraded"], noisy]
    (claim,) = judged(replace(step, facts={"regraded": facts}))
    assert claim.verdict is Verdict.SUSPECT


def rollout(name, reward, *turns):
    return SimpleNamespace(rollout_id=name, group_id=name[0], reward=reward, turn_rewards=turns)


def test_an_equal_reward_is_not_graded_further():
    fact = regraded(rollout("a0", 1.0), lambda _: GradeResult(1.0, {}))
    assert fact == {"sample_id": "a0", "stored": 1.0, "again": 1.0}


def test_rewards_of_turns_are_compared_where_their_sum_is_the_same():
    fact = regraded(rollout("a0", 1.0, 0.8, 0.2), lambda _: GradeResult(1.0, {}, (0.2, 0.8)))
    assert fact == {"sample_id": "a0", "turn": 0, "stored": 0.8, "again": 0.2, "further": [0.2] * FURTHER}


def test_a_function_that_fails_now_and_then_ends_no_run():
    def fails(_):
        raise RewardCrash("the grader is not there")

    fact = regraded(rollout("a0", 1.0), fails)
    assert math.isnan(fact["again"])
    assert all(map(math.isnan, fact["further"]))


def test_whole_groups_are_graded_again_and_other_ones_from_step_to_step():
    rollouts = {f"{g}{i}": rollout(f"{g}{i}", 1.0) for g in "abcd" for i in range(2)} | {
        "e0": rollout("e0", math.nan)
    }
    chosen = [
        [each.rollout_id for each in rollouts_to_regrade(rollouts.values(), 3, (step,))] for step in range(20)
    ]
    assert {each[0] for each in chosen} == {"a0", "b0", "c0", "d0"}
    assert all(each[1] == f"{each[0][0]}1" for each in chosen)
    assert rollouts_to_regrade([rollouts["e0"]], 3, (0,)) == []
