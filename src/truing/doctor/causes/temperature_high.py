"""Rollouts are sampled at a higher temperature than evaluations, and earn much less.

Found: sampling.temperature is above 1 and above eval.temperature, and the evaluation before the stage earns
at least twice as much.
Excluded: It earns less.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history
from truing.doctor.causes.history import History
from truing.doctor.example_steps import example_evaluation

MUCH = 2.0
"""The factor of the rewards."""


def judge(history: History) -> Answer:
    """Return what rollouts and the evaluation earn at the start, and their temperatures."""
    recipe, earned = history.facts.recipe, history.mean("reward/mean")
    trained, evaluated = recipe.sampling.temperature, recipe.eval.temperature
    before = history.evaluations[0].estimate()
    because = (
        f"rollouts at sampling.temperature = {trained:g} earn {earned:.3f}, the evaluation"
        f" before the stage at eval.temperature = {evaluated:g} {before.mean:.3f}"
    )
    if trained <= evaluated or before.low < MUCH * earned:
        return Answer("ruled out", because)
    fix = train_again(history, {"sampling.temperature": max(1.0, evaluated)}, "at a lower temperature")
    outcomes = "if rollouts then earn what the evaluation does, the temperature was the cause"
    return Answer("found", because, 1 - earned / before.mean, fix, outcomes)


def _run(evaluated: float) -> History:
    rewards = [float(37 * i % 100 < 100 * evaluated) for i in range(100)]
    return example_history(
        {"reward/mean": [0.02] * STEPS},
        {"sampling.temperature": 3.0},
        evaluations=(example_evaluation("base", rewards),),
    )


CAUSE = Cause(
    title="the temperature of rollouts is too high",
    needs=("recipe", "evaluations", "reward/mean"),
    applies=lambda history: history.run is not None and history.run.recipe.sampling.temperature > 1,
    stages=("policy", "rft"),
    judge=judge,
    found=(lambda: _run(0.3),),
    excluded=(lambda: _run(0.04),),
)
