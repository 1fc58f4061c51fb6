"""The learning rate is 0.

Found: The rate is 0 in at least half of the steps.
Excluded: It is above 0 in most.
"""

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import History
from truing.utils.format import with_count


def judge(history: History) -> Answer:
    """Return in how many steps the rate is 0."""
    rates = history.series("lr")
    share = rates.count(0) / len(rates)
    where = f"{rates.count(0)} of {with_count(len(rates), 'step')}"
    moved = [row.step + 1 for row in history.counted if row.metrics.get("lr", 0.0) > 0]
    if moved and rates[-1] == 0:
        where += f", since step {moved[-1] + 1}"
    if share < 0.5:
        return Answer("ruled out", f"it is 0 in {where}, and at most {max(rates):.2g}")
    return Answer("found", f"it is 0 in {where}", share, Advice("set a rate, and look at the schedule"))


CAUSE = Cause(
    title="the learning rate is 0",
    needs=("lr",),
    stages=("policy", "rft", "sft"),
    judge=judge,
    found=(lambda: example_history({"lr": 0.0}),),
    excluded=(
        lambda: example_history({"lr": [1e-3 * (23 - i) / 23 for i in range(24)]}),
        example_log,
    ),
)
