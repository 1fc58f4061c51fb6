"""The gradient is 0 although rewards differ.

Found: In at least half of the steps whose rewards differ within groups, the gradient norm is exactly 0.
Excluded: It is above 0 in most of them, or no group has rewards that differ.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import STEPS, example_history, example_log
from truing.doctor.causes.history import History, has_signal
from truing.types.step_table import StepNumbers
from truing.utils.format import with_count

MANY = 0.5
"""Of the steps."""


def judge(history: History) -> Answer:
    """Return how many steps with a signal have no gradient."""
    rows = [row for row in history.counted if "grad/norm" in row.metrics and has_signal(row)]
    norms = [row.metrics["grad/norm"] for row in rows]
    if not norms:
        return Answer(
            "ruled out", "in no step a group has rewards that differ: there is nothing to learn from"
        )
    share = norms.count(0) / len(norms)
    if share >= MANY and history.leaves_out_steps:
        norms = [row.metrics["grad/norm"] for row in rows if not _may_be_tied(row)]
        if not norms:
            because = "a record is of several steps, and its norm of the last, whose groups may all be tied"
            return Answer("cannot tell", because)
        share = norms.count(0) / len(norms)
    where = f"{norms.count(0)} of {with_count(len(norms), 'step')} with a signal"
    if share < MANY:
        return Answer("ruled out", f"its norm is 0 in {where}, and at most {max(norms):.2g}")
    fix = "look for a loss without a gradient: no_grad, detach, or the reference in place of the policy"
    return Answer("found", f"its norm is exactly 0 in {where}", share, Advice(fix))


def _may_be_tied(row: StepNumbers) -> bool:
    """Return whether one of the steps of a record may have equal rewards in each group."""
    return row.metrics.get("group/zero_variance_share", 0.0) > 0


def logged_every_other() -> History:
    """A log of every other step, in which half of the norms are 0, and a fifth of the groups is tied."""
    history = example_log({"grad/norm": [0.0, 1.0] * (STEPS // 2)})
    return replace(history, steps=[replace(row, step=2 * row.step) for row in history.steps])


CAUSE = Cause(
    title="the gradient is 0",
    needs=("grad/norm",),
    judge=judge,
    rules=("OPT005",),
    found=(lambda: example_log({"grad/norm": 0.0}),),
    excluded=(
        example_history,
        lambda: example_history(
            {"grad/norm": 0.0, "advantage/max_abs": 0.0, "group/zero_variance_share": 1.0}
        ),
    ),
)
