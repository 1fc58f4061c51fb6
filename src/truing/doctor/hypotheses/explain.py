"""Explanations for a reward that does not rise: findings, open hypotheses with tests, and excluded ones."""

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
from truing.doctor.hypotheses.group_signal import group_signal, unearned_parts
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
    unearned_parts,
    group_signal,
    evaluation,
    lengths,
    supervised,
    families,
    environment,
    update_size,
)
"""Each function checks one cause, and may yield several hypotheses."""


def why(history: RunHistory) -> list[Hypothesis]:
    """Return every hypothesis: found ones first, then open ones by the minutes of their test, if known."""
    with_blocked = replace(history, blocked=tuple(no_movement(history)))
    hypotheses = [hypothesis for ask in QUESTIONS for hypothesis in ask(with_blocked)]
    order = {"found": 0, "open": 1, "ruled out": 2}
    return sorted(hypotheses, key=lambda each: (order[each.state], _rank(each)))


def cheapest_test(answers: Sequence[Hypothesis]) -> Hypothesis | None:
    """Return the open hypothesis with the cheapest test."""
    return next((each for each in answers if each.state == "open" and each.test), None)


def _rank(each: Hypothesis) -> float:
    """Return minutes; unknown ones come last."""
    return math.inf if each.minutes is None or not each.test else each.minutes


def tainted_checkpoints(diagnosis: Diagnosis, recipe: Recipe) -> list[str]:
    """Return the consequences of proven faults: checkpoints to discard, stages to run again."""
    every = [finding for each in diagnosis.findings.values() for finding in each]
    lines = []
    for each in findings_by_rule(every, diagnosis.suppressed):
        if each.shown.claim.verdict is not Verdict.PROVEN:
            continue
        finding = each.first  # a proven fault was wrong when it was first suspected
        if set(RULES[finding.code].taints) <= {"metrics"}:
            lines.append(f"{finding.code}: the weights are right; numbers from {finding.where} on are wrong")
            continue
        stages: list[str] = list(recipe.stages)
        again = stages[stages.index(finding.stage) :]
        lines.append(
            f"{finding.code}: discard checkpoints of {finding.stage} after"
            f" {with_count(finding.step, 'step')}, and all later; run again: {', '.join(again)}"
        )
    return lines
