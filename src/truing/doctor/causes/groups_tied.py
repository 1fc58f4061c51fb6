"""Groups have equal rewards, for no single reason.

Found: Most groups have equal rewards, some of them all right and others all wrong.
Open: Most groups have equal rewards, and the record does not say which; or dynamic filtering leaves out most.
Excluded: Fewer than half have.
"""

import math

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import check_recipe, train_again
from truing.doctor.causes.example import STEPS, example_history, example_log
from truing.doctor.causes.history import History
from truing.doctor.causes.rollouts_alike import CAUSE as ROLLOUTS_ALIKE

MANY = 0.5
"""Of the groups."""

KEPT = 0.2
"""Of the groups that dynamic filtering samples: others are sampled in place of those that it leaves out."""

NEAR = 0.1
"""A mean reward from 0 or 1, of which nearly all groups that are tied are all wrong, or all right."""


def judge(history: History) -> Answer | None:
    """Return the share of groups with equal rewards, where no half of all groups shares a reason."""
    alike = ROLLOUTS_ALIKE.answer(history) if history.run is None else None
    if alike and alike.state in ("found", "open"):
        return Answer("cannot tell", f"not before this is settled: {alike.title}")
    tied = history.late("group/zero_variance_share")
    if math.isnan(tied):
        return _by_filter(history)
    right, wrong = history.late("group/all_right_share"), history.late("group/all_wrong_share")
    because = f"{tied:.0%} of groups have equal rewards"
    if tied < MANY:
        return Answer("ruled out", because)
    if math.isnan(right + wrong):
        return _by_mean(history, because, tied)
    if max(right, wrong, tied - right - wrong) >= MANY:
        return None  # tasks_solved, tasks_too_hard and answer_unread are about these
    because += f", {right:.0%} all right, {wrong:.0%} all wrong"
    return Answer("found", because, tied, _resample(history))


def _by_filter(history: History) -> Answer:
    """Return the share of groups that dynamic filtering keeps: those that differ, of a log."""
    rates = history.series("group/kept")
    if not rates:
        return Answer("cannot tell", "the record lacks group/zero_variance_share")
    percent = max(rates) > 1  # else shares
    kept = history.late("group/kept") / (100 if percent else 1)
    because = f"dynamic filtering keeps {kept:.1%} of the groups ({history.column('group/kept')})"
    return Answer("ruled out", because) if kept > KEPT else _by_mean(history, because, 1 - kept)


def _by_mean(history: History, because: str, tied: float) -> Answer:
    """Return what the mean reward says of groups that are tied, if rewards are from 0 to 1."""
    mean = history.late("reward/mean")
    because += f", at a mean reward of {mean:.3g}"
    if 0 <= mean <= NEAR:
        title = "groups have equal rewards: nearly all are wrong"
        outcomes = "if it is paid, the tasks are too hard; if it is not, the reward is broken"
        return Answer("open", because, tied, check_recipe(history), outcomes, title)
    if 1 - NEAR <= mean <= 1:
        title = "groups have equal rewards: nearly all are right"
        test = Advice("train on harder tasks")
        outcomes = (
            "if the reward falls at first and rises, the tasks were solved; if 1 is not the most that a"
        )
        outcomes += " rollout can earn, the reward pays all answers alike"
        return Answer("open", because, tied, test, outcomes, title)
    test = Advice("count groups whose rollouts are all right, and all wrong")
    return Answer(
        "open", because, tied, test, "all right: the tasks are solved; all wrong: they are too hard"
    )


def _resample(history: History) -> Advice:
    """Return the remedy that samples other groups in their place, unless the recipe does so."""
    if history.run is not None and history.run.recipe.gates.equal_groups == "resample":
        return Advice("train on tasks that the policy solves now and then")
    return train_again(history, {"gates.equal_groups": "resample"}, "with other groups in their place")


def some_solved() -> History:
    """Nine of ten groups are tied, half of them right."""
    shares = {"group/zero_variance_share": 0.9, "group/all_right_share": 0.45, "group/all_wrong_share": 0.45}
    return example_history(shares)


def unknown(reward: float = 0.4) -> History:
    """A log with the share of tied groups alone."""
    without = ("group/all_right_share", "group/all_wrong_share")
    rewards = [reward + 0.001 * (i % 3) for i in range(STEPS)]
    return example_log({"group/zero_variance_share": 0.9, "reward/mean": rewards}, without=without)


def filtered(percent: float) -> History:
    """A log with the share of kept groups alone, at a mean reward of 0.02."""
    without = [f"group/{name}_share" for name in ("zero_variance", "all_right", "all_wrong")]
    rewards = [0.02 + 0.001 * (i % 3) for i in range(STEPS)]
    return example_log({"group/kept": percent, "reward/mean": rewards}, without=without)


CAUSE = Cause(
    title="groups have equal rewards",
    applies=lambda history: history.grouped,
    judge=judge,
    tier=1,
    rules=("ADV004",),
    found=(some_solved, unknown, lambda: unknown(0.005), lambda: unknown(0.97), lambda: filtered(5.0)),
    excluded=(example_history, lambda: filtered(60.0)),
)
