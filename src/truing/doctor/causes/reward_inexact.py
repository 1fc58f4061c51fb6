"""The same answer gets another reward when it is graded again.

Found: The doctor graded answers again, and rewards differ (RWD002).
Excluded: It graded some again, and no reward differs.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rules import RULES
from truing.doctor.verdict import Verdict
from truing.utils.format import with_count

RULE = "RWD002"

TAKES = 0.6
"""Of the training signal, at least: differences within a group are of the grader, too."""


def judge(history: History) -> Answer | None:
    """Return what the rule found."""
    result = next((each for each in history.diagnosis.results() if each.code == RULE), None)
    if result is None or result.verdict not in (Verdict.SUSPECT, Verdict.CLEAN):
        return None  # not graded again, or more than inexact
    if not result.findings:
        return Answer(
            "ruled out", f"answers graded again in {with_count(result.steps, 'step')} earn the same"
        )
    fix = Advice(
        "call the reward twice on one answer; give a judge temperature 0 and a seed, or take the mean of"
        " several gradings"
    )
    first, learns = result.findings[0], history.outcome.learns
    because = f"{first.claim.what} ({first.where}): groups learn from differences that are no answer's"
    outcomes = "if its rewards are then the same, the signal is the answers'"
    return Answer("open" if learns else "found", because, 0.1 if learns else TAKES, fix, outcomes)


def graded(*again: float) -> History:
    """Return a run with a step whose first answers were graded again, with these rewards."""
    step = example_step()
    stored = (row.reward for row in step.samples)
    regraded = [{"stored": one, "again": other} for one, other in zip(stored, again, strict=False)]
    diagnosis = Diagnosis([RULES[RULE]])
    diagnosis.add(changed_step(step, facts={"regraded": regraded}))
    return replace(example_history(), diagnosis=diagnosis)


CAUSE = Cause(
    title="the reward is not the same when graded again",
    judge=judge,
    rules=(RULE,),
    found=(lambda: graded(0.5, 0.25),),
    excluded=(lambda: graded(*(row.reward for row in example_step().samples)),),
)
