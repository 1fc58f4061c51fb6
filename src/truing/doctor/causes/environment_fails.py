"""The environment, a tool or a judge fails.

Found: More than a tenth of the rollouts ended in an error.
Excluded: Fewer did.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import check_recipe, train_again
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History

MANY = 0.1
"""Of the rollouts."""


def judge(history: History) -> Answer:
    """Return the share of rollouts that failed."""
    failed = history.late("ended/error")
    because = f"{failed:.0%} of rollouts failed"
    if failed <= MANY:
        return Answer("ruled out", because)
    errors = [each.error for each in history.samples if each.error]
    because += f", the last with: {errors[-1]:.120}" if errors else ""
    if history.run is not None and any("no result within" in error for error in errors):
        longer: dict[str, object] = {"episode.timeout": 10 * history.run.recipe.episode.timeout}
        fix = train_again(history, longer, "with a longer timeout")
        return Answer("found", because, failed, fix, "if rollouts end, the timeout was the cause")
    return Answer("found", because, failed, check_recipe(history))


CAUSE = Cause(
    title="the environment or a judge fails",
    needs=("ended/error",),
    judge=judge,
    found=(lambda: example_history({"ended/error": 0.4}),),
    excluded=(example_history,),
)
