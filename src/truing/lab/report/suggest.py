"""Hypotheses from a run: what `truing why` finds or leaves open, each with its cheapest test."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tomli_w

from truing.doctor.causes.cause import Answer
from truing.doctor.causes.commands import check_minutes, training_minutes
from truing.doctor.causes.explain import why
from truing.doctor.causes.history import History
from truing.doctor.rules import RULES
from truing.lab.report.numbers import nan_to_none
from truing.lab.stats.e_process import min_pairs

ERROR_SHARE = 0.05 / 7
"""The error of one of six hypotheses: it sets the fewest pairs, and so the cost."""

DEFAULT_WITHIN = 0.15
"""The assumed bound on a pair's difference in a suggested test, until the header is edited."""

DEFAULT_SMALLEST_EFFECT = 0.05
"""The smallest effect of interest, until the header is edited."""

RULE_ARMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ADV007": {"unscaled": ("grpo.advantage_scale=none",)},
    "LEN001": {"no-length-division": ("grpo.objective=dr_grpo",)},
    "LEN002": {"leashed": ("kl.coef=0.02", "kl.estimator=k2"), "warmer": ("entropy.coef=0.003",)},
    "RWD001": {"cut-left-out": ("gates.truncated=mask",)},
}
"""Arms to try for a statistical finding, by rule. A proven fault needs a fix in the code, not an arm."""


@dataclass(frozen=True)
class Suggestion:
    """A hypothesis that a run suggests."""

    title: str
    claim: str
    because: str  # the observation
    found: bool  # in the run; else it is open
    arm: str = ""
    changes: tuple[str, ...] = ()  # of the arm
    rules: tuple[str, ...] = ()  # that settle the claim without training
    minutes: float = math.nan

    @property
    def test(self) -> str:
        """The cheapest test, as text."""
        if self.rules:
            return f"check {', '.join(self.rules)} on two steps"
        return f"{min_pairs(ERROR_SHARE, DEFAULT_WITHIN)} pairs or more with {' '.join(self.changes)}"

    def facts(self) -> dict[str, object]:
        """Return the JSON form."""
        return nan_to_none({**asdict(self), "test": self.test})


def suggest(history: History) -> list[Suggestion]:
    """Return hypotheses about a run: found ones first, each kind by the minutes of its test, unknown last."""
    suggestions = [each for answer in why(history) for each in _from_answer(history, answer)]
    unique = {suggestion.title: suggestion for suggestion in reversed(suggestions)}
    return sorted(unique.values(), key=lambda each: (not each.found, math.isnan(each.minutes), each.minutes))


def _from_answer(history: History, answer: Answer) -> Iterator[Suggestion]:
    """Yield the suggestions from an answer of `truing why`."""
    if answer.state not in ("found", "open"):
        return
    found = answer.state == "found"
    if answer.code:
        yield from _from_rule(history, answer, found)
    elif answer.advice.changes:
        title = answer.title[0].upper() + answer.title[1:]
        yield _arm_suggestion(history, title, answer.because, found, "changed", answer.advice.changes)


def _from_rule(history: History, answer: Answer, found: bool) -> Iterator[Suggestion]:
    """Yield suggestions from a rule: a check by the rule itself, and its arms if it has any."""
    rule = RULES[answer.code]
    if rule.kind in "ECM":
        title = f"{rule.code}: {rule.title.rstrip('.')}"
        minutes = check_minutes(history)
        cost = math.nan if minutes is None else minutes
        yield Suggestion(title, rule.title, answer.because, found, rules=(rule.code,), minutes=cost)
    for name, changes in RULE_ARMS.get(rule.code, {}).items():
        title = f"{rule.title.rstrip('.')}: {name}"
        yield _arm_suggestion(history, title, answer.because, found, name, changes)


def _arm_suggestion(
    history: History, title: str, because: str, found: bool, arm: str, changes: tuple[str, ...]
) -> Suggestion:
    """Return a suggestion that training settles, with the minutes of its fewest pairs."""
    run_minutes = training_minutes(history)
    minutes = math.nan if run_minutes is None else 2 * run_minutes * min_pairs(ERROR_SHARE, DEFAULT_WITHIN)
    claim = f"with {' '.join(changes)} the reward is higher"
    return Suggestion(title, claim, because, found, arm, changes, minutes=minutes)


def header_text(suggestion: Suggestion) -> str:
    """Return the header of a suggested hypothesis."""
    table: dict[str, Any] = {
        "claim": suggestion.claim,
        "why": suggestion.because,
        "priority": "medium",
        "smallest_effect": DEFAULT_SMALLEST_EFFECT,
    }
    if suggestion.rules:
        table["check"] = {"rules": list(suggestion.rules), "settles": True}
    if suggestion.arm:
        criterion = {"metric": "eval/reward", "arm": suggestion.arm}
        table |= {
            "confirm": [criterion | {"above": 0.0}],
            "refute": [criterion | {"below": DEFAULT_SMALLEST_EFFECT}],
        }
        table |= {"seeds": 24, "within": {"eval/reward": DEFAULT_WITHIN}}
        table["arms"] = {suggestion.arm: list(suggestion.changes)}
    return tomli_w.dumps(table).strip()
