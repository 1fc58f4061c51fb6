"""Nearly all rollouts have the same answer, whatever the task.

Found: One text is the answer of nine in ten of the last rollouts, which are of several prompts, it earns
less than the largest reward among them, and the policy does not get better.
Open: The same, while the reward rises: it rises to what this answer earns.
Excluded: Answers differ, or the one text earns as much as any: tasks may all ask for it.
"""

import statistics
from collections import Counter
from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.types.sample import SampleFacts
from truing.utils.format import with_count

NEARLY_ALL = 0.9
"""Of the rollouts."""

FEW = 4
"""Prompts: with fewer, tasks hardly differ."""

AS_GOOD = 0.9
"""Of what the best answer earns, and of the rollouts' tasks."""


def judge(history: History) -> Answer | None:
    """Return the commonest answer, what it earns, and for how many tasks it is the right one."""
    rollouts = [each for each in rollouts_of(history) if each.text.strip()]
    prompts = len({each.prompt_hash for each in rollouts})
    if prompts < FEW:
        return None
    text, count = Counter(each.text.strip() for each in rollouts).most_common(1)[0]
    because = f"{text[:40]!r} is the answer in {count} of the last {with_count(len(rollouts), 'rollout')},"
    because += f" which are of {prompts} prompts"
    if count < NEARLY_ALL * len(rollouts):
        return Answer("ruled out", because)
    earned = statistics.fmean(each.reward for each in rollouts if each.text.strip() == text)
    paid, right = _largest(history, rollouts), _right_share(history, rollouts, text)
    because += f"; it earns {earned:.3g}, and the best answer {paid:.3g}"
    if right is not None:
        because += f"; it is the right answer in {right:.0%} of their tasks"
    if earned >= AS_GOOD * paid or (right is not None and right >= AS_GOOD):
        return Answer("ruled out", because)
    fix = Advice(
        "give each right answer about as many tasks, or start from a policy whose answers depend on the task"
        " (a stage of sft)"
    )
    outcomes = "if tasks differ in their right answers, the policy does not read them"
    state = "open" if history.outcome.learns else "found"
    return Answer(state, because, count / len(rollouts), fix, outcomes)


def _largest(history: History, rollouts: list[SampleFacts]) -> float:
    """Return the largest reward of a rollout or a demonstration."""
    return max([each.reward for each in rollouts] + history.demonstrated)


def _right_share(history: History, rollouts: list[SampleFacts], text: str) -> float | None:
    """Return the share of rollouts whose task has this text as its right answer; None if unknown."""
    right = history.run.right if history.run else {}
    known = [str(right[each.task_id]).strip() for each in rollouts if each.task_id in right]
    return statistics.fmean(answer == text for answer in known) if known else None


def _same(count: int, right: int, **metrics: list[float]) -> History:
    """Return rollouts of which some have one answer, which is right in some of eight tasks."""
    history = example_history(metrics)
    rows = [
        replace(each, text="1" if i < count else each.text, reward=float(i // 4 < right))
        for i, each in enumerate(history.samples)
    ]
    return replace(history, samples=rows)


CAUSE = Cause(
    title="nearly all rollouts have one answer, whatever the task",
    needs=("samples",),
    judge=judge,
    tier=1,
    rules=("LEN002",),
    found=(lambda: _same(31, 3), lambda: _same(31, 4, **{"reward/mean": rising()})),
    excluded=(lambda: _same(20, 3), lambda: _same(31, 8)),
)
