"""The critic predicts worse than a constant.

Open: Its explained variance is below 0 over the last steps.
Excluded: It is above.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History


def judge(history: History) -> Answer | None:
    """Return the explained variance."""
    explained = history.late("value/explained_variance")
    if explained != explained or history.run is None:
        return None  # there is no critic
    because = f"its explained variance is {explained:.2g}"
    if explained >= 0 or history.outcome.learns:
        return Answer("ruled out", because)
    rate = history.run.recipe.stage(history.stage).value_learning_rate
    fix = train_again(
        history, {f"{history.stage}.value_learning_rate": rate / 3}, "with a smaller rate of the critic"
    )
    outcomes = "if it rises above 0 and the reward with it, the critic was the cause"
    return Answer("open", because, min(0.5, -explained), fix, outcomes)


PPO = {"stages": ["ppo"], "ppo.steps": 24}


def _ppo(explained: float, **metrics: object) -> History:
    rewards = {"reward/mean": rising()} if metrics else {}
    return example_history({"value/explained_variance": explained} | rewards, PPO, stage="ppo")


CAUSE = Cause(
    title="the critic predicts worse than a constant",
    judge=judge,
    found=(lambda: _ppo(-0.6),),
    excluded=(lambda: _ppo(0.3), lambda: _ppo(-0.1, reward=1)),
)
