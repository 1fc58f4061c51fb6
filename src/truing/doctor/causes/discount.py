"""The discount leaves nothing of the reward at the first tokens.

Found: γ to the power of the mean length is below a hundredth, and the policy does not get better.
Open: It is below a tenth: a critic may carry the reward to the first tokens.
Excluded: More is left, or the policy gets better.
"""

from truing.config import PpoConfig, ReinforceConfig
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History

NOTHING, LITTLE = 0.01, 0.1
"""Of the reward."""


def judge(history: History) -> Answer:
    """Return what is left of a reward at the first token of a mean answer."""
    gamma, length = _gamma(history), history.late("length/mean")
    left = gamma**length
    because = f"of a reward at the end {left:.2g} is left at the first of {length:.3g} tokens"
    because += f": {history.stage}.gamma = {gamma:g}"
    if left >= LITTLE or history.outcome.learns:
        return Answer("ruled out", because)
    fix = train_again(history, {f"{history.stage}.gamma": 1.0}, "without a discount")
    return Answer(
        "found" if left < NOTHING else "open",
        because,
        1 - left,
        fix,
        "if the reward rises, the discount was the cause",
    )


def _gamma(history: History) -> float:
    stage = history.run.recipe.stage(history.stage) if history.run else None
    return stage.gamma if isinstance(stage, PpoConfig | ReinforceConfig) else 1.0


def _ppo(gamma: float, learns: bool = False) -> History:
    rewards = {"reward/mean": rising()} if learns else {}
    recipe = {"stages": ["ppo"], "ppo.steps": 24, "ppo.gamma": gamma}
    return example_history(rewards, recipe, stage="ppo")


CAUSE = Cause(
    title="the discount removes the reward",
    needs=("length/mean",),
    applies=lambda history: _gamma(history) < 1,
    judge=judge,
    found=(lambda: _ppo(0.05),),
    excluded=(lambda: _ppo(0.99), lambda: _ppo(0.05, learns=True)),
)
