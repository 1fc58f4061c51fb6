"""The entropy bonus outweighs the reward.

Found: The recipe has one, the entropy grew at least twofold, and the policy does not get better.
Open: The same of a log, which does not say whether there is one.
Excluded: The entropy did not grow.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, example_log, falling
from truing.doctor.causes.history import History

GREW = 2.0
"""The factor of the entropy."""


def judge(history: History) -> Answer:
    """Return how the entropy changed, and the bonus's coefficient."""
    first, *_, last = history.entropy * 2
    because = f"the entropy went from {first:.2g} to {last:.2g} nats per token"
    changes: dict[str, object] = {}
    if history.run is not None:
        bonus = history.run.recipe.entropy
        because += f", with entropy.coef = {bonus.coef:g}"
        changes = {"entropy.coef": bonus.coef / 10}
        if bonus.target is not None:
            because += f" that adapts to entropy.target = {bonus.target:g}"
            weights = [
                row.metrics["weight/entropy"] for row in history.steps if "weight/entropy" in row.metrics
            ]
            because += f", to {max(weights):.2g} at most" if weights else ""
            changes = {"entropy.target": float(f"{first:.1g}")}
    if last <= GREW * first or history.outcome.learns:
        return Answer("ruled out", because)
    fix = train_again(history, changes, "without a bonus, or with a tenth of it")
    outcomes = "if the entropy stays and the reward does not fall, the bonus was the cause"
    if history.run is None:
        return Answer("open", because, max(history.outcome.lost, 0.3), fix, outcomes)
    return Answer("found", because, 1.0, fix, outcomes)


def _grown(last: float) -> list[float]:
    return [0.7 + (last - 0.7) * i / STEPS for i in range(STEPS)]


def _run(last: float) -> History:
    recipe = {"entropy.coef": 1.0}
    return example_history({"entropy/sampled": _grown(last), "reward/mean": falling()}, recipe)


def _log(last: float) -> History:
    metrics = {"entropy/mean": _grown(last), "reward/mean": falling()}
    return example_log(metrics, without=("entropy/sampled",))


CAUSE = Cause(
    title="the entropy bonus outweighs the reward",
    needs=("entropy",),
    applies=lambda history: history.run is None or history.run.recipe.entropy.coef > 0,
    judge=judge,
    found=(lambda: _run(5.0), lambda: _log(5.0)),
    excluded=(lambda: _run(0.8), lambda: _log(0.8)),
)
