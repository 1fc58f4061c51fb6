"""The tasks are too hard for the policy.

Found: In most groups all rollouts are wrong, and something else shows that right answers are paid.
Open: Nothing shows whether right answers are paid.
Excluded: Most groups have a right rollout, rollouts are cut before they end, or nothing at all is paid.
"""

import math
import statistics
from dataclasses import replace

from truing.doctor.causes.answers_unpaid import paid
from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import check_recipe, larger_groups, train_again
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.groups import family_rewards, groups_of, rollouts_of
from truing.doctor.causes.history import History

MANY = 0.5
"""Of the groups."""

NEARLY_ALL = 0.9
"""Of the rollouts, where they are not compared within groups: each right one counts."""

FEW = 4
"""Rollouts of a group: fewer are all wrong by chance."""

CUT = 0.9
"""Of the rollouts: then their rewards do not depend on the tasks."""


def judge(history: History) -> Answer:
    """Return the share of groups without a right rollout; of rollouts, where they are not compared."""
    wrong, cut = _wrong_share(history), history.late("truncated/share")
    if math.isnan(wrong):
        return Answer("cannot tell", "the record lacks the share of groups whose rollouts are all wrong")
    because = f"in {wrong:.0%} of groups all rollouts are wrong"
    if not history.grouped:
        because = f"{wrong:.0%} of rollouts earn nothing"
    if wrong < (MANY if history.grouped else NEARLY_ALL):
        if history.unearned:
            unearned = " or ".join(history.unearned)
            return Answer("cannot tell", f"{because}, all parts counted, but none is paid for {unearned}")
        return Answer("ruled out", because)
    groups = groups_of(history)
    if groups and statistics.fmean(each.alike for each in groups) >= MANY:
        return Answer("cannot tell", f"{because}, and in most all answers are the same: each counts once")
    if cut >= CUT:
        return Answer("ruled out", f"{cut:.0%} of rollouts are cut before their end")
    if _size(history) < FEW:
        outcomes = (
            "if a larger group has a right rollout, groups are too small; if not, the tasks are too hard"
        )
        return Answer("open", because, wrong / 2, larger_groups(history), outcomes)
    if history.pays:
        return _paid(history, because, wrong)
    if history.demonstrated:
        return Answer("ruled out", "demonstrations earn nothing either")
    outcomes = "if a right answer is paid, the tasks are too hard"
    return Answer("open", because, wrong, check_recipe(history), outcomes)


def _paid(history: History, because: str, wrong: float) -> Answer:
    """Return that something is paid, unless demonstrations are not."""
    if history.demonstrated and max(history.demonstrated) <= history.floor:
        waits = "not before it is settled why demonstrations earn nothing"
        return Answer("cannot tell", f"{because}; {waits}: {paid(history)}")
    return Answer("found", f"{because}; {paid(history)}", wrong, _easier(history))


def _size(history: History) -> float:
    """Return the mean number of rollouts in a group; infinity if unknown."""
    groups = groups_of(history) if history.grouped else []
    return statistics.fmean(len(each.rewards) for each in groups) if groups else math.inf


def _wrong_share(history: History) -> float:
    """Return the share, without families of which no rollout is paid: these have a cause of their own."""
    rewards = family_rewards(history)
    unpaid = {name for name, each in rewards.items() if max(each) <= 0}
    if not history.grouped:
        return statistics.fmean(each.reward <= 0 for each in rollouts_of(history)) if rewards else math.nan
    if not unpaid or len(unpaid) == len(rewards):
        return history.late("group/all_wrong_share")
    return statistics.fmean(
        max(each.rewards) <= 0 for each in groups_of(history) if each.family not in unpaid
    )


def _easier(history: History) -> Advice:
    """Return the remedy: more demonstrations first, or other tasks."""
    sft = history.run.recipe.sft if history.run and "sft" in history.run.recipe.stages else None
    if sft is None:
        return Advice("train on easier tasks, or on demonstrations first (a stage of sft)")
    return train_again(history, {"sft.steps": 2 * sft.steps}, "after more demonstrations")


HARD = {
    "reward/mean": 0.0,
    "group/zero_variance_share": 0.9,
    "group/all_right_share": 0.0,
    "group/all_wrong_share": 0.9,
}


def hard() -> History:
    """Nine of ten groups have no right rollout, and a demonstration is paid."""
    history = example_history(HARD, samples=())
    return replace(history, run=replace(history.facts, demonstrated={"words": [1.0, 1.0]}))


def dead() -> History:
    """The same, but no demonstration is paid."""
    return replace(hard(), run=replace(hard().facts, demonstrated={"words": [0.0, 0.0]}))


CAUSE = Cause(
    title="the tasks are too hard",
    needs=("reward/mean",),
    stages=("policy", "rft"),
    judge=judge,
    tier=1,
    rules=("ADV004",),
    found=(hard,),
    excluded=(dead, example_history, lambda: example_log(HARD | {"truncated/share": 1.0})),
)
