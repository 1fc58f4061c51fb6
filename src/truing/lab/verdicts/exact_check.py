"""What an exact check says of a claim: proven, ruled out, or left to the arms."""

import math
from collections.abc import Iterator

from truing.doctor.verdict import Verdict as Strength
from truing.lab.store.hypothesis_file import Check
from truing.lab.store.ledger import CheckResult


def proven_texts(check: Check, checked: CheckResult) -> list[str]:
    """What rules that were asked have proven, each with its code."""
    return [
        f"{code}: {said}"
        for code, strength, said in _asked_results(check, checked)
        if strength == Strength.PROVEN
    ]


def is_ruled_out(check: Check, checked: CheckResult) -> bool:
    """Whether every rule and measure that was asked is clean."""
    return not proven_texts(check, checked) and not list(unsettled_texts(check, checked))


def clean_text(check: Check, checked: CheckResult) -> str:
    """What was looked at and found to be in order."""
    codes = [code for code, strength, _ in _asked_results(check, checked) if strength == Strength.CLEAN]
    rules = [f"{', '.join(codes)} found nothing"] if codes else []
    known = {each.metric: checked.measures.get(each.metric, math.nan) for each in check.measures}
    return "; ".join([*rules, *(f"{name} is {value:g}" for name, value in known.items())])


def unsettled_texts(check: Check, checked: CheckResult) -> Iterator[str]:
    """What neither proves nor rules out: suspicions, what rules lacked, measures beyond their bound."""
    for code, strength, said in _asked_results(check, checked):
        if strength not in (Strength.PROVEN, Strength.CLEAN):
            yield f"{code} ({strength}: {said})"
    for rule in check.rules:
        if not any(code.startswith(rule) for code in checked.results):
            yield f"{rule} (no update that it is of)"
    for each in check.measures:
        value = checked.measures.get(each.metric, math.nan)
        if not value < each.below:
            yield f"{each.metric} is {value:g}, not below {each.below:g}"


def _asked_results(check: Check, checked: CheckResult) -> Iterator[tuple[str, str, str]]:
    """Each rule that was asked: its code, how strong its verdict is, and what it says."""
    for code, (strength, said) in checked.results.items():
        if check.rules and code.startswith(check.rules):
            yield code, strength, said
