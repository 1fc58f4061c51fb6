"""RWD002: rewards that are not what their answers earn, by what explains them."""

import math
from dataclasses import replace
from types import SimpleNamespace

from truing.doctor.rules import rwd014
from truing.doctor.rules.rwd002 import REWARDS, RULE, example, group_paid
from truing.doctor.verdict import Verdict
from truing.errors import RewardCrash
from truing.measurements.regraded import regraded, rollouts_to_regrade
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


def changed_rewards(by):
    """Return the claim of a step whose first reward is off by so much."""
    step = rwd014.example()
    pairs = [each | {"stored": each["again"]} for each in step.facts["graded"]["pairs"]]
    pairs[0] = pairs[0] | {"stored": pairs[0]["again"] + by}
    (claim,) = rwd014.RULE.judge(replace(step, facts={"graded": {"rollouts": 8, "pairs": pairs}}))
    return claim


def test_rewards_that_their_grader_did_not_return_are_proven():
    (changed,) = rwd014.RULE.judge(rwd014.example())
    (moved,) = rwd014.RULE.judge(rwd014.of_another_rollout())
    (kept,) = rwd014.RULE.judge(rwd014.not_graded())
    assert changed.what == "3 of 8 rollouts have another reward than their grader returned"
    assert moved.what == "8 of 8 rewards are on other rows than their answers: shifted by -1"
    assert kept.got == "0.1 is stored, no grader was called for it"
    near = changed_rewards(1e-7)
    assert near.what == "1 of 8 rollouts have another reward than their grader returned"
    assert {each.verdict for each in (changed, moved, kept)} == {Verdict.PROVEN}


def test_another_reward_of_a_few_answers_makes_the_grader_suspect():
    step = example()
    facts = [each | {"stored": 0.5, "again": 0.75} for each in step.facts["regraded"][:4]]
    (claim,) = judged(replace(step, facts={"regraded": facts}))
    assert claim.verdict is Verdict.SUSPECT


def rollout(name, reward, *turns):
    return SimpleNamespace(rollout_id=name, group_id=name[0], reward=reward, turn_rewards=turns)


def test_an_equal_reward_has_an_equal_second_one():
    fact = regraded(rollout("a0", 1.0), lambda _: GradeResult(1.0, {}))
    assert fact == {"sample_id": "a0", "stored": 1.0, "again": 1.0}


def test_rewards_of_turns_are_compared_where_their_sum_is_the_same():
    fact = regraded(rollout("a0", 1.0, 0.8, 0.2), lambda _: GradeResult(1.0, {}, (0.2, 0.8)))
    assert fact == {"sample_id": "a0", "turn": 0, "stored": 0.8, "again": 0.2}


def test_a_function_that_fails_now_and_then_ends_no_run():
    def fails(_):
        raise RewardCrash("the grader is not there")

    fact = regraded(rollout("a0", 1.0), fails)
    assert math.isnan(fact["again"])


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
