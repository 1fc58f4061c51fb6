"""The gradient is 0 although rewards differ.

Found: In at least half of the steps whose rewards differ within groups, the gradient norm is exactly 0.
Excluded: It is above 0 in most of them, or no step has rewards that differ.
"""

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import History, has_signal
from truing.utils.format import with_count


def judge(history: History) -> Answer:
    """Return how many steps with a signal have no gradient."""
    norms = [
        row.metrics["grad/norm"] for row in history.counted if "grad/norm" in row.metrics and has_signal(row)
    ]
    if not norms:
        return Answer("ruled out", "no step has rewards that differ, so that there is nothing to learn from")
    share = norms.count(0) / len(norms)
    where = f"{norms.count(0)} of {with_count(len(norms), 'step')} with a signal"
    if share < 0.5:
        return Answer("ruled out", f"its norm is 0 in {where}, and at most {max(norms):.2g}")
    fix = "look for a loss without a gradient: no_grad, detach, or the reference in place of the policy"
    return Answer("found", f"its norm is exactly 0 in {where}", share, Advice(fix))


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
