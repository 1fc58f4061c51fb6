"""The optimizer's eps is far above the gradients, and makes each step smaller than the learning rate says.

Found: optimizer.eps is above its default, steps of the weights are less than a tenth of the learning rate by
AdamW's second computation, and the policy does not get better.
Open: That computation is not on record, and eps is above what the gradient leaves for a weight at most.
Excluded: Steps are about as large as the rate, or the policy gets better.
"""

import math
import statistics
from dataclasses import replace

from truing.config.sections import OptimizerConfig
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History

USUAL: float = OptimizerConfig.model_fields["eps"].default

SMALL = 0.1
"""Of the learning rate. AdamW's steps are about as large as the rate while gradients are far above eps."""


def judge(history: History) -> Answer:
    """Return eps beside the gradient, and the steps of a weight beside the rate."""
    optimizer, norm = history.facts.recipe.optimizer, history.mean("grad/norm")
    left = min(norm, optimizer.max_grad_norm or math.inf)
    because = f"optimizer.eps = {optimizer.eps:g}; the norm of the gradient of all weights together is"
    because += f" {norm:.2g}" + (f", clipped to {left:.2g}" if left < norm else "")
    share = _of_rate(history)
    if not math.isnan(share):
        because += f"; a weight moves by at most {share:.2g} of the learning rate in a step"
    if history.outcome.learns or share >= SMALL or (math.isnan(share) and optimizer.eps < left):
        return Answer("ruled out", because)
    outcomes = "if answers change, eps was the cause"
    fix = train_again(history, {"optimizer.eps": USUAL}, "with the default eps")
    return Answer("open" if math.isnan(share) else "found", because, 1.0, fix, outcomes)


def _of_rate(history: History) -> float:
    """Return the largest step of a weight's entries ÷ the rate, the median over the steps; NaN if unknown."""
    known = [
        row.facts["adamw"]["step"] / row.metrics["lr"]
        for row in history.counted
        if "adamw" in row.facts and row.metrics.get("lr", 0.0) > 0
    ]
    return statistics.median(known) if known else math.nan


def _eps(share: float, **metrics: float | list[float]) -> History:
    """Return a record at an eps of 1, and a share of the rate."""
    history = example_history(metrics, {"optimizer.eps": 1.0})
    fact = {"weight": "q_proj", "largest": 0.0, "step": share * 1e-3, "rounding": 0.0}
    return replace(history, steps=[replace(row, facts={"adamw": fact}) for row in history.steps])


CAUSE = Cause(
    title="the optimizer's eps is far above the gradients",
    needs=("recipe", "grad/norm"),
    applies=lambda history: history.run is not None and history.run.recipe.optimizer.eps > USUAL,
    judge=judge,
    found=(
        lambda: _eps(1e-4),
        lambda: example_history({"grad/norm": 0.5}, {"optimizer.eps": 1.0}),
    ),
    excluded=(
        lambda: _eps(0.8),
        lambda: _eps(1e-4, **{"reward/mean": rising()}),
    ),
)
