"""A penalty on long or cut answers outweighs the reward.

Found: The largest penalty is at least half of what a rollout can earn, answers get shorter, and the policy
does not get better.
Open: The same, while answers keep their length.
Excluded: It is smaller, no answer is penalised, or the policy gets better.
"""

import statistics

from truing.config import Recipe
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, falling
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import RECENT_STEPS

LARGE = 0.5
"""Of what a rollout can earn."""

SHORTER = 0.8
"""The factor of the mean length."""


def judge(history: History) -> Answer:
    """Return the largest penalty beside what a rollout can earn, and the lengths."""
    earns = sum(abs(weight) for weight in history.facts.weights.values()) or 1.0
    penalties = penalties_of(history.facts.recipe)
    key = max(penalties, key=lambda name: penalties[name])
    because = f"{key} = {penalties[key]:g}, of rollouts that earn up to {earns:g}"
    if penalties[key] < LARGE * earns or history.outcome.learns:
        return Answer("ruled out", because)
    lengths = [row.metrics["length/mean"] for row in history.steps if "length/mean" in row.metrics]
    first, last = (statistics.fmean(part) for part in (lengths[:RECENT_STEPS], lengths[-RECENT_STEPS:]))
    because += f"; answers went from {first:.3g} to {last:.3g} tokens"
    if not _is_given(history, key, max(lengths)):
        return Answer("ruled out", f"{because}, and hardly one is penalised")
    shorter = last < SHORTER * first
    fix = train_again(history, {key: 0.1 * earns}, "with a tenth of the penalty")
    outcomes = "if the reward rises, the penalty was the cause"
    return Answer("found" if shorter else "open", because, 1.0 if shorter else 0.5, fix, outcomes)


def _is_given(history: History, key: str, length: float) -> bool:
    """Return whether answers are cut, or as long as a penalty on length begins."""
    if key == "gates.truncated_penalty":
        return max(history.series("truncated/share"), default=0.0) > 0
    recipe = history.facts.recipe
    return length > recipe.sampling.max_new_tokens - recipe.gates.overlong_tokens


def penalties_of(recipe: Recipe) -> dict[str, float]:
    """Return the penalties that a recipe has, by key: the largest that a rollout can get, reward units."""
    gates = recipe.gates
    overlong = {"gates.overlong_penalty": gates.overlong_penalty} if gates.overlong_tokens else {}
    cut = {"gates.truncated_penalty": gates.truncated_penalty} if gates.truncated == "penalize" else {}
    return overlong | cut


def _run(penalty: float) -> History:
    recipe = {"gates.overlong_tokens": 28, "gates.overlong_penalty": penalty}
    lengths = [10.0 - 8.0 * i / STEPS for i in range(STEPS)]
    return example_history({"length/mean": lengths, "reward/mean": falling()}, recipe)


CAUSE = Cause(
    title="a penalty outweighs the reward",
    needs=("recipe", "length/mean"),
    applies=lambda history: history.run is not None and bool(penalties_of(history.run.recipe)),
    judge=judge,
    found=(lambda: _run(8.0),),
    excluded=(lambda: _run(0.1),),
)
