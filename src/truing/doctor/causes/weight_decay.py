"""The weight decay shrinks the weights.

Found: Over the stage it takes a tenth of the weights or more, and the policy does not get better.
Excluded: It takes less.
"""

import math

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, falling
from truing.doctor.causes.history import History

MUCH = 0.1
"""Of the weights."""


def judge(history: History) -> Answer:
    """Return the share of the weights that the decay takes: 1 − Π (1 − rate × decay)."""
    recipe = history.facts.recipe
    stage, decay = recipe.stage(history.stage), recipe.optimizer.weight_decay
    repeats = getattr(stage, "inner_epochs", 1) * getattr(stage, "minibatches", 1)
    rates = [row.metrics["lr"] for row in history.steps if "lr" in row.metrics]
    taken = 1 - math.exp(sum(math.log1p(-min(0.999, rate * decay)) for rate in rates) * repeats)
    because = f"optimizer.weight_decay = {decay:g} takes {taken:.2g} of the weights over the stage"
    if taken < MUCH or history.outcome.learns:
        return Answer("ruled out", because)
    fix = train_again(history, {"optimizer.weight_decay": 0.01}, "with a small decay")
    return Answer("found", because, 1.0, fix, "if the reward does not fall, the decay was the cause")


def _run(decay: float) -> History:
    return example_history(
        {"reward/mean": falling(), "lr": [1e-3] * STEPS}, {"optimizer.weight_decay": decay}
    )


CAUSE = Cause(
    title="the weight decay shrinks the weights",
    needs=("recipe", "lr"),
    applies=lambda history: history.run is not None and history.run.recipe.optimizer.weight_decay > 0,
    judge=judge,
    found=(lambda: _run(50.0),),
    excluded=(lambda: _run(0.1),),
)
