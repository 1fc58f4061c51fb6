"""The entropy bonus outweighs the reward.

Found: The recipe has one, the entropy grew at least twofold, and the policy does not get better.
Excluded: The entropy did not grow.
"""

import math

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, falling
from truing.doctor.causes.history import History

GREW = 2.0
"""The factor of the entropy."""


def judge(history: History) -> Answer:
    """Return how the entropy changed, and the bonus's coefficient."""
    coef = history.facts.recipe.entropy.coef
    values = [row.metrics.get("entropy/sampled", math.nan) for row in history.steps]
    first, *_, last = [value for value in values if math.isfinite(value)] * 2
    because = f"the entropy went from {first:.2g} to {last:.2g} nats per token, with entropy.coef = {coef:g}"
    if last < GREW * first or history.outcome.learns:
        return Answer("ruled out", because)
    fix = train_again(history, {"entropy.coef": coef / 10}, "with a tenth of the bonus")
    outcomes = "if the entropy stays and the reward does not fall, the bonus was the cause"
    return Answer("found", because, 1.0, fix, outcomes)


def _run(last: float) -> History:
    entropy = [0.7 + (last - 0.7) * i / STEPS for i in range(STEPS)]
    return example_history({"entropy/sampled": entropy, "reward/mean": falling()}, {"entropy.coef": 1.0})


CAUSE = Cause(
    title="the entropy bonus outweighs the reward",
    needs=("recipe", "entropy/sampled"),
    applies=lambda history: history.run is not None and history.run.recipe.entropy.coef > 0,
    judge=judge,
    found=(lambda: _run(5.0),),
    excluded=(lambda: _run(0.8),),
)
