"""Rollouts begin with a forced prefix, and earn less than the evaluation, whose answers do not.

Found: The recipe forces one in at least a tenth of the turns, and over the last steps the mean reward is
below the interval of the last evaluation, by a fifth of what a rollout can earn or more.
Excluded: It is not.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.evaluation_differs import FAR
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History
from truing.doctor.example_steps import example_evaluation

MANY = 0.1
"""Of the turns."""

FEW = 1.5
"""Sampled tokens of a rollout: little more than its stop."""


def forces(history: History) -> bool:
    """Return whether turns begin with a prefix, to the end of the stage."""
    if history.run is None:
        return False
    episode = history.run.recipe.episode
    return bool(episode.forced_prefix) and episode.force_rate >= MANY and not episode.force_steps


def judge(history: History) -> Answer:
    """Return what is forced, and what rollouts and evaluation earn."""
    episode, earned = history.facts.recipe.episode, history.after("reward/mean")
    evaluated = history.evaluations[-1].estimate()
    because = f"episode.forced_prefix = {episode.forced_prefix!r} begins {episode.force_rate:.0%} of turns"
    if (length := history.after("length/mean")) <= FEW:
        because += f", after which little but the stop is sampled (length/mean {length:.2g})"
    because += f"; the rollouts earn {earned:.3g}, and the evaluation, which forces none, {evaluated}"
    earns = sum(map(abs, history.facts.weights.values())) or 1.0
    if evaluated.low - earned < FAR * earns:
        return Answer("ruled out", because)
    fix = train_again(history, {"episode.force_rate": 0.0}, "without the prefix")
    outcomes = "if rollouts earn as much as the evaluation, the prefix was the cause"
    return Answer("found", because, 0.9 * episode.force_rate, fix, outcomes)


def _forced(reward: float) -> History:
    """Return rollouts that all begin with 0, and an evaluation that earns 0.5."""
    forced = {"episode.forced_prefix": "0", "episode.force_rate": 1.0}
    after = example_evaluation("after_grpo", [float(i % 2) for i in range(100)])
    history = example_history({"reward/mean": reward, "length/mean": 1.0}, forced)
    return replace(history, evaluations=[replace(after, name="base"), after])


CAUSE = Cause(
    title="rollouts begin with a forced prefix",
    needs=("evaluations", "reward/mean"),
    applies=forces,
    judge=judge,
    rules=("LEN004",),
    found=(lambda: _forced(0.05),),
    excluded=(lambda: _forced(0.5),),
)
