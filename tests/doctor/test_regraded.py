"""RWD002: rewards that are not what their answers earn, by what explains them."""

from dataclasses import replace

from truing.doctor.rules.rwd002 import REWARDS, RULE, example, group_paid
from truing.doctor.verdict import Verdict


def judged(step):
    return list(RULE.judge(RULE.measure(step)))


def test_the_value_of_a_group_that_every_attempt_is_paid_is_proven():
    (claim,) = judged(group_paid())
    assert claim.verdict is Verdict.PROVEN
    assert claim.what == "8 of 8 attempts have the mean of their group's rewards"


def test_a_group_of_which_an_attempt_was_not_graded_again_explains_nothing():
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
