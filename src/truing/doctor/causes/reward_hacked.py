"""The reward is hacked: what it pays for rises, and what a second grader sees does not.

Found: The paid reward of the evaluations rises and the second grader's does not, or this falls and the paid
one does not; the interval of the difference of both gains excludes 0. Or nearly all answers are paid in full,
and the second grader rejects many.
Open: The paid reward rises, and the evaluation has too few tasks to tell whether the second grader's does.
Excluded: The second grader sees a gain too, or the paid reward does not rise.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import look, train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History
from truing.doctor.example_steps import example_evaluation

SHOWN, CHARS = 3, 60
"""Answers that a message shows, and their characters."""

FULL, LESS = 0.95, 0.2
"""Of the most that an answer can earn: what is paid in full, and by how much the second grader gives less."""


def judge(history: History) -> Answer | None:
    """Return both gains, and answers that are paid and that the second grader rejects."""
    outcome = history.outcome
    if outcome.second is None or outcome.gain is None:
        declared = history.run is not None and history.run.recipe.eval.grader
        lacks = "two evaluations" if declared else "a second grader (eval.grader)"
        return Answer("cannot tell", f"the record lacks {lacks}") if outcome.learns else None
    because = f"paid {outcome.gain.paired.signed}, by the second grader {outcome.second.paired.signed}"
    if not outcome.unconfirmed:
        if denied := _denied_at_most(history):
            return denied
        if outcome.second.is_gain or not outcome.gain.is_gain:
            return Answer("ruled out", because)
        more: dict[str, object] = {"eval.tasks": 4 * len(outcome.gain.differences)}
        fix = train_again(history, more, "with more evaluation tasks")
        outcomes = "if the second grader's gain is above 0 then, the reward is not hacked"
        return Answer("open", f"{because}, which these tasks do not tell apart", 0.1, fix, outcomes)
    paid, confirmed = outcome.gain.paired.mean, outcome.second.paired.mean
    share = min(1.0, (paid - confirmed) / max(paid, -confirmed))
    if rejected := _rejected(history):
        because += f"; paid and rejected: {', '.join(rejected)}"
    return Answer(
        "found", because, share, look(history), "if these answers are right, the second grader is wrong"
    )


def _denied_at_most(history: History) -> Answer | None:
    """Return that nearly all answers are paid in full, and that the second grader rejects many of them."""
    last = history.evaluations[-1]
    second, paid = last.by_second_grader(), last.estimate()
    if second is None or last.bounds is None or second.bounds != last.bounds:
        return None
    most, seen = last.bounds[1], second.estimate()
    if paid.mean < FULL * most or seen.high >= paid.mean - LESS * most:
        return None
    because = f"the evaluation is paid {paid}; the second grader gives it {seen}"
    if rejected := _rejected(history):
        because += f"; paid and rejected: {', '.join(rejected)}"
    outcomes = "if these answers are right, the second grader is wrong"
    share = (paid.mean - seen.mean) / most
    return Answer("found", because, share, look(history), outcomes, "the reward pays wrong answers")


def _rejected(history: History) -> list[str]:
    """Return answers of the last evaluation that are paid most and that the second grader gives least."""
    last = history.evaluations[-1]
    gap = {
        task: last.reward[task] - sum(last.second[task]) / len(last.second[task])
        for task in last.reward
        if last.second.get(task)
    }
    worst = sorted(gap, key=lambda task: -gap[task])[:SHOWN]
    return [f"{last.answers[task][0]!r:.{CHARS}} ({task})" for task in worst if last.answers.get(task)]


def _evaluated(
    paid: float, second: float, before: tuple[float, float] = (0.2, 0.2), apart: bool = False
) -> History:
    """Return a run whose evaluation starts at ``before`` of both, and ends here.

    ``apart``: whether the second grader likes other answers than those that are paid.
    """
    ends = []
    for name, by_reward, by_second in (("base", *before), ("after_grpo", paid, second)):
        rewards, others = (
            [float(step * i % 100 < 100 * share) for i in range(100)]
            for share, step in ((by_reward, 37), (by_second, 61 if apart else 37))
        )
        graded = example_evaluation(name, rewards)
        ends.append(replace(graded, second=dict(zip(graded.reward, ([x] for x in others), strict=True))))
    return example_history({"reward/mean": rising()}, evaluations=ends)


CAUSE = Cause(
    title="the reward is hacked",
    stages=("policy", "rft"),
    judge=judge,
    found=(
        lambda: _evaluated(0.9, 0.15),
        lambda: _evaluated(1.0, 0.1, (1.0, 0.4)),
        lambda: _evaluated(0.3, 0.24, apart=True),
        lambda: _evaluated(1.0, 0.48, (0.99, 0.55)),
    ),
    excluded=(
        lambda: _evaluated(0.9, 0.8),
        lambda: _evaluated(0.25, 0.2),
        lambda: _evaluated(1.0, 0.9, (0.99, 0.9)),
    ),
)
