"""Empty or short answers are paid as much as others, or more.

Found: Many answers are empty, and earn at least as much as the others.
Open: Within groups, shorter answers earn more, and the reward does not rise.
Excluded: Neither.
"""

import statistics

import scipy

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import look
from truing.doctor.causes.example import example_history, example_sample
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.types.sample import SampleFacts
from truing.types.status import Status
from truing.utils.format import with_count

MANY = 0.3
"""Of the rollouts."""

FEWEST = 16
"""Rollouts for a correlation."""

RANK, CHANCE = -0.3, 1e-3
"""A rank correlation, and its p-value, from which shorter answers earn more."""


def judge(history: History) -> Answer | None:
    """Return what empty answers earn, and the correlation of length and reward within groups."""
    # cut answers are as long as the limit, and mostly wrong: that is no preference of the reward
    every = rollouts_of(history)
    whole = [each for each in every if each.status != Status.TRUNCATED]
    empty = [each.reward for each in whole if not each.text.strip()]
    others = [each.reward for each in whole if each.text.strip()]
    if len(empty) > MANY * len(every):
        return _empty(history, empty, others)
    return _shorter(history, whole)


def _empty(history: History, empty: list[float], others: list[float]) -> Answer:
    """Return what empty answers earn beside the others."""
    count, paid = len(empty) + len(others), statistics.fmean(empty)
    because = f"{len(empty)} of the last {with_count(count, 'rollout')} are empty, and earn {paid:.3g}"
    if others:
        because += f"; the others {statistics.fmean(others):.3g}"
    if demonstrated := history.demonstrated:
        because += f"; demonstrations {statistics.fmean(demonstrated):.3g}"
    worth = not others or paid >= statistics.fmean(others)
    title = "empty answers are paid" if paid > 0 else "answers are empty"
    return Answer("found" if worth else "open", because, len(empty) / count, look(history), title=title)


def _shorter(history: History, whole: list[SampleFacts]) -> Answer | None:
    """Return whether shorter answers of a group earn more."""
    length = {each.rollout_id: sum(turn.end - turn.start for turn in each.turns) for each in whole}
    by_group: dict[str, list[SampleFacts]] = {}
    for each in whole:
        by_group.setdefault(each.group_id, []).append(each)
    lengths, rewards = list[float](), list[float]()
    for group in by_group.values():
        if len({each.reward for each in group}) < 2 or len({length[each.rollout_id] for each in group}) < 2:
            continue
        middle = statistics.fmean(length[each.rollout_id] for each in group)
        mean = statistics.fmean(each.reward for each in group)
        lengths += [length[each.rollout_id] - middle for each in group]
        rewards += [each.reward - mean for each in group]
    if len(lengths) < FEWEST:
        return None
    rank = scipy.stats.spearmanr(lengths, rewards)
    because = (
        f"within groups that differ the rank correlation of length and reward is {float(rank.statistic):+.2f}"
    )
    because += f" over {with_count(len(lengths), 'rollout')} (p = {float(rank.pvalue):.1g})"
    if rank.statistic > RANK or rank.pvalue > CHANCE:
        return Answer("ruled out", because)
    if history.outcome.learns or history.trend.rises:
        return Answer("ruled out", f"{because}, and {history.trend.summary()}")
    outcomes = "if short answers are as good, this is no fault"
    return Answer("open", because, 0.01, look(history), outcomes, "short answers earn more")


def empty_pays() -> History:
    """All answers are empty, and are paid."""
    return example_history(samples=[example_sample(i, text="", reward=0.7, tokens=1) for i in range(32)])


def lengths_apart() -> History:
    """Answers of many lengths, right and wrong alike."""
    return example_history(samples=[example_sample(i, tokens=5 + i % 7) for i in range(64)])


CAUSE = Cause(
    title="empty answers are paid",
    needs=("samples",),
    judge=judge,
    rules=("LEN001", "LEN004"),
    found=(empty_pays,),
    excluded=(lengths_apart,),
)
