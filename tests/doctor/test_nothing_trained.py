"""MSK009: stages that train no token, and those that have not kept a rollout yet."""

import pytest

from truing.doctor.rules.msk009 import RULE, idle
from truing.doctor.verdict import Verdict
from truing.types.token import Excluded


@pytest.mark.parametrize(
    ("count", "reason", "steps", "verdict"),
    [
        (5, Excluded.NOT_KEPT, 40, Verdict.FACT),
        (10, Excluded.NOT_KEPT, 40, Verdict.SUSPECT),
        (5, Excluded.NOT_KEPT, 5, Verdict.SUSPECT),
        (5, Excluded.FORCED_ACTION, 40, Verdict.SUSPECT),
        (5, Excluded.FORCED_ACTION, 5, Verdict.PROVEN),
    ],
)
def test_rollouts_that_are_not_good_enough_yet_are_a_fact(count, reason, steps, verdict):
    (claim,) = RULE.judge(idle(count, reason, steps))
    assert claim.verdict is verdict
