"""The tasks are solved: nothing is left to learn.

Found: In most groups all rollouts are right.
Excluded: Most groups have a wrong rollout, or the evaluation does not earn as much.
"""

from truing.analysis.estimate import Estimate
from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import History
from truing.doctor.causes.rollouts_alike import narrowed
from truing.doctor.example_steps import example_evaluation

MANY = 0.5
"""Of the groups."""

LESS = 0.2
"""By which an evaluation may earn less than rollouts do."""


def judge(history: History) -> Answer:
    """Return the share of groups whose rollouts are all right."""
    right = history.late("group/all_right_share")
    because = f"in {right:.0%} of groups all rollouts are right"
    if right < MANY:
        return Answer("ruled out", because)
    if history.run is not None and (narrow := narrowed(history.run.recipe)):
        return Answer(
            "cannot tell", f"{because}, of rollouts that draw from few tokens ({', '.join(narrow)})"
        )
    if (seen := _seen(history)) and seen.high < right - LESS:
        return Answer("ruled out", f"{because}, and the evaluation earns {seen}")
    fix = "train on harder tasks, or leave out those that are solved"
    return Answer("found", because, right, Advice(fix))


def _seen(history: History) -> Estimate | None:
    """Return the last evaluation: by the second grader, if there is one."""
    if not history.evaluations:
        return None
    last = history.evaluations[-1]
    return (last.by_second_grader() or last).estimate()


def memorised() -> History:
    """All rollouts are right, and evaluation tasks are not."""
    rewards = example_evaluation("after_grpo", [float(i < 20) for i in range(100)])
    return example_history(SOLVED, evaluations=(rewards,))


SOLVED = {"group/zero_variance_share": 0.9, "group/all_right_share": 0.9, "group/all_wrong_share": 0.0}

CAUSE = Cause(
    title="the tasks are solved",
    needs=("group/all_right_share",),
    applies=lambda history: history.grouped,
    judge=judge,
    tier=1,
    rules=("ADV004",),
    found=(lambda: example_history(SOLVED),),
    excluded=(example_history, example_log, memorised),
)
