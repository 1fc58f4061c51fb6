"""Tool calls are refused.

Found: Less than half of the calls are valid.
Excluded: Most are.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import check_recipe
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History

MOST = 0.5
"""Of the calls."""


def judge(history: History) -> Answer | None:
    """Return the share of valid calls."""
    valid = history.late("tools/valid_share")
    if valid != valid:
        return None  # no call has a reply
    because = f"{valid:.0%} of calls are valid"
    if valid >= MOST:
        return Answer("ruled out", because)
    return Answer("found", because, 1 - valid, check_recipe(history))


CAUSE = Cause(
    title="tool calls are refused",
    judge=judge,
    found=(lambda: example_history({"tools/valid_share": 0.2}),),
    excluded=(lambda: example_history({"tools/valid_share": 0.9}),),
)
