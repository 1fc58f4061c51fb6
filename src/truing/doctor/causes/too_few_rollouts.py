"""Too few steps or rollouts to see a change.

Found: The stage has too few steps for a trend, or their noise hides a change of a fifth of the range.
Excluded: The reward changed clearly, or these steps would show a change of a twentieth.
"""

import math

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_log, falling, rising
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import MIN_STEPS
from truing.utils.format import with_count

LARGE, SMALL = 0.2, 0.05
"""Of the range of the reward."""

MOST = 16
"""Times as many rollouts that a test takes."""


def judge(history: History) -> Answer:
    """Return the change that these steps would show."""
    outcome, trend = history.outcome, history.trend
    if outcome.fell or outcome.learns:
        return Answer("ruled out", next(outcome.lines()))
    if trend.steps < MIN_STEPS:
        because = f"{with_count(trend.steps, 'step')}: a trend shows over {MIN_STEPS} or more"
        return Answer("found", because, 1 - trend.steps / MIN_STEPS, _longer(history))
    rewards = [row.metrics["reward/mean"] for row in history.rewarded]
    weights = sum(abs(x) for x in history.run.weights.values()) if history.run else 0.0
    span = max(weights, max(rewards) - min(0.0, *rewards))
    if math.isnan(trend.resolves) or trend.resolves <= SMALL * span:
        return Answer("ruled out", trend.summary())
    times = math.ceil((trend.resolves / (SMALL * span)) ** 2)
    because = f"these steps would show a change of {trend.resolves:.2g}"
    because += f"; one of {SMALL * span:.2g} takes about {times} times as many rollouts"
    share = min(1.0, trend.resolves / span)
    return Answer("found" if share >= LARGE else "open", because, share, _more(history, times))


def _longer(history: History) -> Advice:
    """Return to let the stage reach the steps of its recipe, or to give it more if it has."""
    steps = history.run.recipe.stage(history.stage).steps if history.run else 0
    if steps >= MIN_STEPS:
        return Advice(f"let the stage go on to its {steps} steps; if the run has stopped, resume it")
    longer: dict[str, object] = {f"{history.stage}.steps": 4 * MIN_STEPS}
    return train_again(history, longer, "for more steps")


def _more(history: History, times: int) -> Advice:
    if history.steps_left:
        return _longer(history)
    prompts = history.run.recipe.stage(history.stage).prompts_per_step if history.run else 0
    more: dict[str, object] = {f"{history.stage}.prompts_per_step": prompts * min(times, MOST)}
    return train_again(history, more, "with more prompts in a step")


CAUSE = Cause(
    title="too few rollouts to see a change",
    needs=("reward/mean",),
    judge=judge,
    tier=3,
    found=(lambda: example_history({"reward/mean": [0.4, 0.5, 0.3, 0.4]}),),
    excluded=(
        lambda: example_history({"reward/mean": rising()}),
        lambda: example_log({"reward/mean": falling()}),
        lambda: example_history({"reward/mean": [0.4 + 0.01 * (i % 3) for i in range(24)]}),
    ),
)
