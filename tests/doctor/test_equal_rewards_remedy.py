"""RWD006: what to do depends on whether every reward is the largest."""

import pytest

from truing.doctor.rules.rwd006 import RULE, alike


@pytest.mark.parametrize(("reward", "remedy"), [(0.0, "grade right answers"), (1.0, "choose harder tasks")])
def test_nothing_can_earn_more_than_the_largest_reward(reward, remedy):
    (claim,) = RULE.judge(alike(reward, (0.0, 0.0)))
    assert remedy in claim.remedy
