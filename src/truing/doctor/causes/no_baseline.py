"""Without a baseline all rewards push the same way: what sets rollouts apart is lost in their mean.

Found: Nothing is subtracted from rewards whose mean is at least three times their deviation, and the policy
does not get better.
Excluded: Rewards are around 0, or the policy gets better.
"""

import math

from truing.config import ReinforceConfig
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history
from truing.doctor.causes.history import History

FAR = 3.0
"""Deviations of the rewards."""


def judge(history: History) -> Answer:
    """Return the mean and the deviation of the rewards."""
    mean, deviation = history.mean("reward/mean"), history.mean("reward/std")
    because = f"rewards of {mean:.3g} ± {deviation:.2g} count as they are: reinforce.baseline is none"
    if not deviation or abs(mean) < FAR * deviation or history.outcome.learns:
        return Answer("ruled out", because)
    share = abs(mean) / math.hypot(mean, deviation)
    fix = train_again(history, {"reinforce.baseline": "step"}, "with a baseline")
    return Answer("found", because, share, fix, "if the reward rises, the missing baseline was the cause")


def _lacks(history: History) -> bool:
    stage = history.run.recipe.stage(history.stage) if history.run else None
    return isinstance(stage, ReinforceConfig) and stage.baseline == "none" and not stage.whiten


def _rewarded(mean: float) -> History:
    rewards = [mean + 0.01 * (i % 3) for i in range(STEPS)]
    recipe = {"stages": ["reinforce"], "reinforce.steps": STEPS, "reinforce.baseline": "none"}
    return example_history({"reward/mean": rewards}, recipe, stage="reinforce")


CAUSE = Cause(
    title="rewards have no baseline",
    needs=("reward/mean", "reward/std"),
    applies=_lacks,
    judge=judge,
    found=(lambda: _rewarded(5.5),),
    excluded=(lambda: _rewarded(0.4),),
)
