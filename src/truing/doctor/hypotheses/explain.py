"""Why does the reward not go up? What was found, what is open and its test, and what was ruled out."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from truing.config import Recipe
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.hypotheses.candidates import (
    environment,
    evaluation,
    families,
    lengths,
    rule_findings,
    supervised,
    update_size,
)
from truing.doctor.hypotheses.group_signal import group_signal
from truing.doctor.hypotheses.hypothesis import Hypothesis
from truing.doctor.hypotheses.no_movement import no_movement
from truing.doctor.hypotheses.run_history import RunHistory
from truing.doctor.report.repeated_findings import findings_by_rule
from truing.doctor.rules import RULES
from truing.doctor.verdict import Verdict
from truing.utils.format import with_count

QUESTIONS: tuple[Callable[[RunHistory], Iterator[Hypothesis]], ...] = (
    rule_findings,
    no_movement,
    group_signal,
    evaluation,
    lengths,
    supervised,
    families,
    environment,
    update_size,
)
"""Each asks one thing, and may have several answers."""


def why(story: RunHistory) -> list[Hypothesis]:
    """Every hypothesis: what was found first, then what is open by the minutes of its test, where known."""
    told = replace(story, blocked=tuple(no_movement(story)))
    made = [found for ask in QUESTIONS for found in ask(told)]
    order = {"found": 0, "open": 1, "ruled out": 2}
    return sorted(made, key=lambda each: (order[each.state], _rank(each)))


def cheapest_test(answers: Sequence[Hypothesis]) -> Hypothesis | None:
    """Of what is open, the one whose test is the cheapest."""
    return next((each for each in answers if each.state == "open" and each.test), None)


def _rank(each: Hypothesis) -> float:
    """Minutes; what nobody can tell comes last."""
    return math.inf if each.minutes is None or not each.test else each.minutes


def tainted_checkpoints(diagnosis: Diagnosis, recipe: Recipe) -> list[str]:
    """What a proven fault taints: checkpoints to discard, stages to run again."""
    every = [found for each in diagnosis.findings.values() for found in each]
    told = []
    for each in findings_by_rule(every, diagnosis.suppressed):
        if each.shown.claim.verdict is not Verdict.PROVEN:
            continue
        found = each.first  # what is proven now was wrong when it was first suspected
        if set(RULES[found.code].taints) <= {"metrics"}:
            told.append(
                f"{found.code}: the weights are as they should be; numbers from {found.where} on are not"
            )
            continue
        stages = list(recipe.stages)
        again = stages[stages.index(found.stage) :]
        told.append(
            f"{found.code}: discard checkpoints of {found.stage} after {with_count(found.step, 'update')},"
            f" and all later; run again: {', '.join(again)}"
        )
    return told
