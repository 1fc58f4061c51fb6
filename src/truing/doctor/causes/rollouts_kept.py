"""Rejection sampling selects nothing: it keeps no rollout, or every one.

Found: No rollout of the last steps earns ``rft.min_reward``, and rewards differ.
Open: All earn it, and the policy does not get better.
Excluded: Some are kept and others not, or the policy gets better.
"""

import math
from dataclasses import replace

from truing.config import RftConfig
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import look, train_again
from truing.doctor.causes.example import example_history
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.utils.format import with_count

NONE, ALL = "rejection sampling keeps no rollout", "rejection sampling keeps every rollout"


def judge(history: History) -> Answer:
    """Return how many rollouts are kept, the threshold, and what rollouts earn."""
    stage = history.facts.recipe.stage("rft")
    assert isinstance(stage, RftConfig)
    rewards = [each.reward for each in rollouts_of(history)]
    if not rewards:
        return Answer("cannot tell", "the record lacks rewards of rollouts")
    kept, least, most = sum(x >= stage.min_reward for x in rewards), min(rewards), max(rewards)
    because = f"{kept} of the last {with_count(len(rewards), 'rollout')} earn rft.min_reward ="
    because += f" {stage.min_reward:g} or more; rewards are from {least:.3g} to {most:.3g}"
    if 0 < kept < len(rewards) or (kept and history.outcome.learns):
        return Answer("ruled out", because)
    if least == most:
        same = "every rollout earns the same: no threshold selects among them"
        return Answer(
            "open", f"{because}; {same}", 0.5, look(history), "if answers differ, the reward is broken"
        )
    reachable = math.floor(1000 * most) / 1000
    fix = train_again(history, {"rft.min_reward": reachable}, "with a threshold that the best rollouts reach")
    if not kept:
        return Answer("found", because, 1.0, fix, title=NONE)
    outcomes = "if the evaluation rises, the threshold was the cause"
    return Answer("open", f"{because}: nothing is selected", 0.9, fix, outcomes, ALL)


def _run(threshold: float) -> History:
    recipe = {"stages": ["rft"], "rft.min_reward": threshold}
    return example_history(recipe=recipe, label="supervised", stage="rft")


def _equal() -> History:
    history = _run(1.0)
    return replace(history, samples=[replace(each, reward=0.5) for each in history.samples])


CAUSE = Cause(
    title="rejection sampling selects nothing",
    stages=("rft",),
    needs=("samples",),
    judge=judge,
    rules=("MSK009", "OPT016", "RWD010", "RWD012"),
    found=(lambda: _run(1.5), lambda: _run(0.0), _equal),
    excluded=(lambda: _run(1.0),),
)
