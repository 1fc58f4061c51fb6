"""The reward does not depend on the answer.

Found: Most groups are tied, at rewards between wrong and right, and their answers differ.
Excluded: Most groups have different rewards, or their answers are the same, or all right, or all wrong.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import look
from truing.doctor.causes.example import example_history, example_log, example_sample
from truing.doctor.causes.groups import groups_of
from truing.doctor.causes.history import History

MANY = 0.5
"""Of the groups."""


def judge(history: History) -> Answer:
    """Return how many groups are tied in between, and whether their answers differ."""
    tied = history.late("group/zero_variance_share")
    extremes = history.late("group/all_right_share") + history.late("group/all_wrong_share")
    between = tied - extremes
    because = (
        f"{tied:.0%} of groups have equal rewards, {max(0.0, between):.0%} at one between wrong and right"
    )
    if between < MANY:
        return Answer("ruled out", because)
    groups = [each for each in groups_of(history) if each.tied]
    differ = sum(not each.alike for each in groups)
    if groups and differ <= len(groups) / 2:
        return Answer(
            "ruled out", f"{because}; the answers are the same in {len(groups) - differ} of {len(groups)}"
        )
    outcomes = "if other answers to a task earn another reward, the ties were chance"
    if not groups:
        return Answer("open", because, between, look(history), outcomes)
    because += f"; in {differ} of the last {len(groups)} such groups the answers differ"
    return Answer("found", because, between, look(history))


TIED = {"group/zero_variance_share": 1.0, "group/all_right_share": 0.0, "group/all_wrong_share": 0.0}


def by_task() -> History:
    """Each task has one reward for all answers."""
    samples = [example_sample(i, reward=0.2 + 0.05 * (i // 4)) for i in range(32)]
    return example_history(TIED, samples=samples)


def one_answer() -> History:
    """The same, with one answer to each task."""
    return replace(by_task(), samples=[replace(each, text=each.task_id) for each in by_task().samples])


CAUSE = Cause(
    title="the reward does not depend on the answer",
    needs=("group/zero_variance_share", "group/all_right_share", "group/all_wrong_share"),
    applies=lambda history: history.grouped,
    judge=judge,
    rules=("RWD006", "ADV004"),
    found=(by_task,),
    excluded=(one_answer, example_history, example_log),
)
