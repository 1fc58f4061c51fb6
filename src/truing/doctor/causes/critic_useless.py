"""The critic predicts worse than a constant.

Found: Its explained variance is below 0 over the last steps, at a λ below 0.5, where it makes up most of an
advantage; at a rate below a hundredth of the policy's; or at thirty times the default.
Open: Its explained variance is below 0, at another rate, or in a log.
Excluded: It is above.
"""

import math

from truing.config import PpoConfig
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_log, rising
from truing.doctor.causes.history import History

SLOW, FAST = 100.0, 30.0
"""The factor of the policy's rate over the critic's, and of the critic's over its default."""

USUAL: float = PpoConfig.model_fields["value_learning_rate"].default

LAM: float = PpoConfig.model_fields["lam"].default

SHORT = 0.5
"""A λ below which an advantage is mostly differences of the critic's values."""


def judge(history: History) -> Answer | None:
    """Return the explained variance."""
    known = (history.late(f"value/{name}") for name in ("explained_variance", "centred_explained_variance"))
    explained = next((value for value in known if not math.isnan(value)), None)
    if explained is None:
        return None  # there is no critic
    because = f"its explained variance is {explained:.2g}"
    if explained >= 0 or history.outcome.learns:
        return Answer("ruled out", because)
    outcomes = "if it rises above 0 and the reward with it, the critic was the cause"
    if history.run is None:
        fix = train_again(
            history, {}, "with a smaller rate of the critic, or with steps of the critic alone first"
        )
        return Answer("open", because, min(0.5, -explained), fix, outcomes)
    key, stage = f"{history.stage}.value_learning_rate", history.run.recipe.stage(history.stage)
    rate = stage.value_learning_rate
    if stage.lam < SHORT:
        lam = f"{history.stage}.lam"
        because += f"; at {lam} = {stage.lam:g} an advantage is mostly what it predicts, and not the reward"
        fix = train_again(history, {lam: LAM}, "with the default λ")
        meaning = f"if the reward rises, λ was the cause; if it does not, train the critic ({key} = {rate:g})"
        title = "advantages rest on a critic that predicts nothing"
        return Answer("found", because, 1.0, fix, meaning, title)
    if rate * SLOW < history.rate:
        because += f", and {key} = {rate:g} hardly trains it: the policy's rate is {history.rate:g}"
        fix = train_again(history, {key: history.rate}, "with a larger rate of the critic")
        return Answer("found", because, 1.0, fix, outcomes)
    if rate > FAST * USUAL:
        because += f", at {key} = {rate:g}"
        return Answer("found", because, 1.0, train_again(history, {key: USUAL}, "with the default"), outcomes)
    fix = train_again(history, {key: rate / 3}, "with a smaller rate of the critic")
    return Answer("open", because, min(0.5, -explained), fix, outcomes)


PPO = {"stages": ["ppo"], "ppo.steps": 24}


def _ppo(explained: float, learns: bool = False, slow: bool = False, lam: float = LAM) -> History:
    rewards = {"reward/mean": rising()} if learns else {}
    rates = {"ppo.learning_rate": 1e-3, "ppo.value_learning_rate": 1e-9} if slow else {}
    recipe = PPO | rates | {"ppo.lam": lam}
    return example_history({"value/explained_variance": explained} | rewards, recipe, stage="ppo")


CAUSE = Cause(
    title="the critic predicts worse than a constant",
    judge=judge,
    found=(
        lambda: _ppo(-0.6),
        lambda: _ppo(-0.6, slow=True),
        lambda: _ppo(-0.2, slow=True, lam=0.0),
        lambda: example_log({"value/centred_explained_variance": -9.0}),
    ),
    excluded=(lambda: _ppo(0.3), lambda: _ppo(-0.1, learns=True)),
)
