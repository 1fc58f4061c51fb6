"""The tasks are solved: nothing is left to learn.

Found: In most groups all rollouts are right.
Excluded: Most groups have a wrong rollout, or the evaluation does not earn as much. Where rollouts earn less
than the most that they can, it waits for what they miss.
"""

import math

from truing.analysis.estimate import Estimate
from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.doctor.causes.rollouts_alike import narrowed
from truing.doctor.example_steps import example_evaluation

MANY = 0.5
"""Of the groups."""

LESS = 0.2
"""By which an evaluation may earn less than rollouts do."""

NEAR = 0.95
"""Of the most that a rollout can earn."""


def judge(history: History) -> Answer:
    """Return the share of groups whose rollouts are all right."""
    right, most = history.late("group/all_right_share"), _most(history)
    earned = max((each.reward for each in rollouts_of(history)), default=math.nan)
    because = f"in {right:.0%} of groups all rollouts " + ("earn 1 or more" if most > 1 else "are right")
    if right < MANY:
        return Answer("ruled out", because)
    if history.unearned:
        return Answer("cannot tell", f"{because}, but none is paid for {' or '.join(history.unearned)}")
    if earned < NEAR * most:
        return Answer("cannot tell", f"{because}, and at most {earned:.3g} of a possible {most:.3g}")
    if history.run is not None and (narrow := narrowed(history.run.recipe)):
        return Answer(
            "cannot tell", f"{because}, of rollouts that draw from few tokens ({', '.join(narrow)})"
        )
    if (seen := _seen(history)) and seen[1].high < right - LESS:
        return Answer("ruled out", f"{because}, and {seen[0]} {seen[1]}")
    fix = "train on harder tasks, or leave out those that are solved"
    return Answer("found", because, right, Advice(fix))


def _most(history: History) -> float:
    """Return the most that a rollout can earn, by the evaluations' bounds; NaN if unknown."""
    bounds = history.evaluations[-1].bounds if history.evaluations else None
    return bounds[1] if bounds else math.nan


def _seen(history: History) -> tuple[str, Estimate] | None:
    """Return the last evaluation, with what it is of: by the second grader, if there is one."""
    if not history.evaluations:
        return None
    last = history.evaluations[-1]
    if second := last.by_second_grader():
        return "the second grader gives the evaluation", second.estimate()
    return "the evaluation earns", last.estimate()


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
