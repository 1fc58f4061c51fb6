"""The guard undoes steps.

Found: It undid at least as many as a quarter of those that remain.
Excluded: It undid fewer.
"""

import math
from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import error_of_mean
from truing.utils.format import with_count

MANY = 0.2
"""Of all steps that were made."""

CHANCE, RARE = 3.0, 5.0
"""Standard errors of the difference of two means: below the first, a fall is often chance."""

WINDOW = 5
"""Steps of a mean that is not of one step's tasks alone."""


def judge(history: History) -> Answer | None:
    """Return the share of undone steps, and what the guard takes for a fall."""
    undone = history.facts.rolled_back
    if not undone:
        return None
    share, because = undone / (undone + len(history.steps)), _said(history)
    if share < MANY:
        return Answer("ruled out", because)
    if by_chance := _by_chance(history, because, share):
        return by_chance
    smaller: dict[str, object] = {f"{history.stage}.learning_rate": history.rate / 3}
    outcomes = "if it undoes none, steps were too large"
    return Answer(
        "found", because, share, train_again(history, smaller, "at a third of the learning rate"), outcomes
    )


def _said(history: History) -> str:
    """Return what the guard did, and why, as text."""
    facts, guard = history.facts, history.facts.recipe.guard
    said = f"the guard undid {with_count(facts.rolled_back, 'step')}"
    if facts.rollbacks:
        times = with_count(len(facts.rollbacks), "rollback")
        said += f" in {times}, the last because {facts.rollbacks[-1]}"
    said += f"; {with_count(len(history.steps), 'step remains', 'steps remain')}"
    if guard and guard.learning_rate < 1:
        said += f"; guard.learning_rate = {guard.learning_rate:g} multiplies the rate each time"
    return said


def _by_chance(history: History, because: str, share: float) -> Answer | None:
    """Return the answer if the drop that the guard allows is within the noise of its means; None if not."""
    guard, error = history.facts.recipe.guard, error_of_mean(history.rewarded[0].metrics)
    if not guard or guard.reward_drop is None:
        return None
    noise = error * math.sqrt(2 / guard.window)
    if not guard.reward_drop < CHANCE * noise:
        return None
    because += f"; by chance alone two means of {with_count(guard.window, 'step')} differ by {noise:.2g}"
    because += " (standard error)"
    window = max(WINDOW, guard.window)
    drop = float(f"{RARE * error * math.sqrt(2 / window):.2g}")
    wider: dict[str, object] = {"guard.window": window, "guard.reward_drop": drop}
    fix = train_again(history, wider, "with a wider guard")
    outcomes = "if it undoes none, the guard took chance for a fall"
    return Answer("found", because, share, fix, outcomes, "the guard undoes steps for chance")


def _undone(steps: int, drop: float | None = None) -> History:
    """Return a record with undone steps, and a guard that allows a drop."""
    keys = {"guard.reward_drop": drop, "guard.window": 1} if drop else {}
    history = example_history(recipe=keys)
    reasons = ["the mean reward of 1 step fell from 0.5 to 0.4"] * (steps // 2)
    return replace(history, run=replace(history.facts, rolled_back=steps, rollbacks=reasons))


CAUSE = Cause(
    title="the guard undoes steps",
    needs=("recipe", "reward/mean"),
    judge=judge,
    found=(lambda: _undone(30), lambda: _undone(30, 0.02), lambda: _undone(30, 0.9)),
    excluded=(lambda: _undone(2),),
)
