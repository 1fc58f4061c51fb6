"""Some demonstrations earn nothing: their answers are wrong, or the grader is.

Found: A quarter of them or more earn 0 or less, others of the same kind more, and the policy does not get
better; or a loss on demonstrations runs beside rollouts that earn more.
Excluded: Nearly all earn something, or the policy gets better.
"""

import statistics
from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import check_recipe, train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History
from truing.utils.format import with_count

MANY = 0.25
"""Of the demonstrations."""


def judge(history: History) -> Answer | None:
    """Return how many demonstrations earn nothing, and what rollouts earn."""
    demonstrated, recipe = history.demonstrated, history.facts.recipe
    if not demonstrated:
        return None
    unpaid = sum(earned <= 0 for earned in demonstrated)
    because = f"{unpaid} of {with_count(len(demonstrated), 'demonstration')} earn nothing"
    if unpaid < MANY * len(demonstrated) or history.outcome.learns:
        return Answer("ruled out", because)
    families = history.facts.demonstrated.values()
    mixed = [earned for each in families if max(each, default=0.0) > 0 for earned in each]
    share = sum(earned <= 0 for earned in mixed) / len(mixed) if mixed else 0.0
    rollouts, coef = history.series("reward/mean")[:1], recipe.bootstrap.coef
    if recipe.bootstrap.steps and rollouts and rollouts[0] > statistics.fmean(demonstrated):
        because += f"; rollouts earn {rollouts[0]:.3g} in the first step, and bootstrap.coef is {coef:g}"
        fix = train_again(history, {"bootstrap.steps": 0}, "without the loss on demonstrations")
        outcomes = "if the reward does not fall, the demonstrations were the cause"
        return Answer(
            "found", because, 1.0, fix, outcomes, "the loss on demonstrations teaches what earns less"
        )
    if share < MANY:  # of whole families none does: these have a cause of their own
        return None
    outcomes = "if these answers are right, the grader is wrong"
    return Answer("found", because, max(share, 0.5), check_recipe(history), outcomes)


def _graded(*demonstrated: float, bootstrap: int = 0, learns: bool = False) -> History:
    recipe = {"bootstrap.steps": bootstrap, "bootstrap.coef": 5.0} if bootstrap else {}
    history = example_history({"reward/mean": rising()} if learns else {}, recipe)
    return replace(history, run=replace(history.facts, demonstrated={"words": demonstrated}))


CAUSE = Cause(
    title="demonstrations earn nothing",
    needs=("recipe",),
    judge=judge,
    found=(lambda: _graded(1.0, 0.0, 0.0, 1.0), lambda: _graded(0.0, 0.0, bootstrap=24)),
    excluded=(lambda: _graded(1.0, 1.0, 1.0), lambda: _graded(1.0, 0.0, learns=True)),
)
