"""Some demonstrations earn nothing: their answers are wrong, or the grader is.

Nothing is at most 0, or where rewards are negative at most what the worst rollouts earn.
Found: A quarter of them or more earn nothing, others of the same kind more, and the policy does not get
better; or all of them do, and rollouts earn more; or a loss on demonstrations runs beside rollouts that earn
more.
Open: All of them earn nothing, and the policy gets better at what earns more, or the environment draws.
Excluded: Nearly all earn something, or some do and the policy gets better.
"""

import statistics
from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import check_recipe, train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.utils.format import with_count

MANY = 0.25
"""Of the demonstrations."""

DRAWS = "TOL002"
"""The rule that suspects an environment that draws: a demonstration may be of another episode."""

OUTCOMES = "if these answers are right, the grader is wrong"


def judge(history: History) -> Answer | None:
    """Return how many demonstrations earn nothing, and what rollouts earn."""
    demonstrated, recipe, floor = history.demonstrated, history.facts.recipe, history.floor
    if not demonstrated:
        return None
    unpaid = sum(earned <= floor for earned in demonstrated)
    because = f"{unpaid} of {with_count(len(demonstrated), 'demonstration')} earn"
    because += f" at most what the worst rollouts do, {floor:.3g}" if floor < 0 else " nothing"
    every = unpaid == len(demonstrated)
    if unpaid < MANY * len(demonstrated) or (history.outcome.learns and not every):
        return Answer("ruled out", because)
    rollouts, coef = history.series("reward/mean")[:1], recipe.bootstrap.coef
    if recipe.bootstrap.steps and rollouts and rollouts[0] > statistics.fmean(demonstrated):
        because += f"; rollouts earn {rollouts[0]:.3g} in the first step, and bootstrap.coef is {coef:g}"
        fix = train_again(history, {"bootstrap.steps": 0}, "without the loss on demonstrations")
        outcomes = "if the reward does not fall, the demonstrations were the cause"
        return Answer(
            "found", because, 1.0, fix, outcomes, "the loss on demonstrations teaches what earns less"
        )
    if every:
        return _none(history, because)
    families = history.facts.demonstrated.values()
    mixed = [earned for each in families if max(each, default=floor) > floor for earned in each]
    share = sum(earned <= floor for earned in mixed) / len(mixed) if mixed else 0.0
    if share < MANY:  # of whole families none does: these have a cause of their own
        return None
    return Answer("found", because, max(share, 0.5), check_recipe(history), OUTCOMES)


def _none(history: History, because: str) -> Answer | None:
    """Return that all earn nothing, and what rollouts earn; None if these earn nothing either."""
    rewards = [each.reward for each in rollouts_of(history)] + history.series("reward/mean")
    if max(rewards, default=history.floor) <= history.floor:
        return None  # answers_unpaid is about this
    because += f", while rollouts earn up to {max(rewards):.3g}"
    if history.suspects(DRAWS):
        because += f"; the environment may draw another episode for them ({DRAWS})"
        return Answer("open", because, 0.05, check_recipe(history), OUTCOMES)
    if history.outcome.learns:
        because += ": the policy gets better at what demonstrations do not show"
        return Answer("open", because, 0.9, check_recipe(history), OUTCOMES)
    return Answer("found", because, 1.0, check_recipe(history), OUTCOMES)


def _graded(*demonstrated: float, bootstrap: int = 0, learns: bool = False) -> History:
    recipe = {"bootstrap.steps": bootstrap, "bootstrap.coef": 5.0} if bootstrap else {}
    history = example_history({"reward/mean": rising()} if learns else {}, recipe)
    return replace(history, run=replace(history.facts, demonstrated={"words": demonstrated}))


def _noisy(*demonstrated: float) -> History:
    """Return rewards that are negative for half of the answers."""
    history = _graded(*demonstrated)
    return replace(history, samples=[replace(each, reward=6 * each.reward - 3) for each in history.samples])


CAUSE = Cause(
    title="demonstrations earn nothing",
    needs=("recipe",),
    stages=("policy", "rft", "sft"),
    judge=judge,
    found=(
        lambda: _graded(1.0, 0.0, 0.0, 1.0),
        lambda: _graded(0.0, 0.0, bootstrap=24),
        lambda: _graded(0.0, 0.0),
        lambda: _graded(0.0, 0.0, learns=True),
    ),
    excluded=(
        lambda: _graded(1.0, 1.0, 1.0),
        lambda: _graded(1.0, 0.0, learns=True),
        lambda: _noisy(-0.5, 1.5, -1.0),
    ),
)
