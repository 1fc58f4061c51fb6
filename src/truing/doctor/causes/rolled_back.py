"""The guard undoes steps.

Found: It undid at least as many as a quarter of those that remain.
Excluded: It undid fewer.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History
from truing.utils.format import with_count

MANY = 0.2
"""Of all steps that were made."""


def judge(history: History) -> Answer | None:
    """Return the share of undone steps."""
    undone = history.facts.rolled_back
    if not undone:
        return None
    share = undone / (undone + len(history.steps))
    because = f"the guard undid {with_count(undone, 'step')}; {len(history.steps)} remain"
    if share < MANY:
        return Answer("ruled out", because)
    smaller: dict[str, object] = {f"{history.stage}.learning_rate": history.rate / 3}
    outcomes = "if it undoes none, steps were too large"
    return Answer(
        "found", because, share, train_again(history, smaller, "at a third of the learning rate"), outcomes
    )


def _undone(steps: int) -> History:
    history = example_history()
    return replace(history, run=replace(history.facts, rolled_back=steps))


CAUSE = Cause(
    title="the guard undoes steps",
    needs=("recipe",),
    judge=judge,
    found=(lambda: _undone(30),),
    excluded=(lambda: _undone(2),),
)
