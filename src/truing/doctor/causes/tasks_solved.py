"""The tasks are solved: nothing is left to learn.

Found: In most groups all rollouts are right.
Excluded: Most groups have a wrong rollout.
"""

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import History

MANY = 0.5
"""Of the groups."""


def judge(history: History) -> Answer:
    """Return the share of groups whose rollouts are all right."""
    right = history.late("group/all_right_share")
    because = f"in {right:.0%} of groups all rollouts are right"
    if right < MANY:
        return Answer("ruled out", because)
    fix = "train on harder tasks, or leave out those that are solved"
    return Answer("found", because, right, Advice(fix))


CAUSE = Cause(
    title="the tasks are solved",
    needs=("group/all_right_share",),
    applies=lambda history: history.grouped,
    judge=judge,
    tier=1,
    rules=("ADV004",),
    found=(
        lambda: example_history(
            {"group/zero_variance_share": 0.9, "group/all_right_share": 0.9, "group/all_wrong_share": 0.0}
        ),
    ),
    excluded=(example_history, example_log),
)
