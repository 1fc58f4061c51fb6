"""Results of an exact check for a claim: proven, ruled out, or left to the arms."""

import math
from collections.abc import Iterator

from truing.doctor.rules import RULES
from truing.doctor.verdict import Verdict as Strength
from truing.lab.store.hypothesis_file import Check
from truing.lab.store.ledger import CheckResult


def proven_texts(check: Check, result: CheckResult) -> list[str]:
    """Return the proven findings of the requested rules, each with its code."""
    return [
        f"{code}: {text}"
        for code, strength, text in _requested_results(check, result)
        if strength == Strength.PROVEN
    ]


def is_ruled_out(check: Check, result: CheckResult) -> bool:
    """Whether every requested rule and measure is clean."""
    return not proven_texts(check, result) and not list(unsettled_texts(check, result))


def clean_text(check: Check, result: CheckResult) -> str:
    """Return the clean rules, and the measures that rule the claim out, as text."""
    codes = [code for code, strength, _ in _requested_results(check, result) if strength == Strength.CLEAN]
    rules = [f"{', '.join(codes)} found nothing"] if codes else []
    absent = _absent(check, result)
    rules += absent if len(absent) < len(check.rules) else []  # else they leave the claim unsettled
    values = ((each, result.measures.get(each.metric, math.nan)) for each in check.measures)
    measures = (f"{each.metric} is {value:g}" for each, value in values if value < each.below)
    return "; ".join([*rules, *measures])


def unsettled_texts(check: Check, result: CheckResult) -> Iterator[str]:
    """Yield what neither proves nor rules out: suspicions, missing inputs, measures beyond their bound."""
    for code, strength, text in _requested_results(check, result):
        if strength not in (Strength.PROVEN, Strength.CLEAN):
            yield f"{code} ({strength}: {text})"
    if len(absent := _absent(check, result)) == len(check.rules):  # else the others settle it
        yield from absent
    for measure in check.measures:
        value = result.measures.get(measure.metric, math.nan)
        if not value < measure.below:
            yield f"{measure.metric} is {value:g}, not below {measure.below:g}"


def _absent(check: Check, result: CheckResult) -> list[str]:
    """Return the requested rules without a result, each with the reason, as one on SFT without SFT."""
    absent = [rule for rule in check.rules if not any(code.startswith(rule) for code in result.results)]
    reasons = {True: "statistical: no check has it", False: "no step that it applies to"}
    return [f"{rule} ({reasons[rule in RULES and RULES[rule].kind == 'S']})" for rule in absent]


def _requested_results(check: Check, result: CheckResult) -> Iterator[tuple[str, str, str]]:
    """Yield each requested rule: its code, the strength of its verdict, and its text."""
    for code, (strength, text) in result.results.items():
        if check.rules and code.startswith(check.rules):
            yield code, strength, text
