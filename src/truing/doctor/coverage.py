"""What was never looked at: rules that applied to steps of a stage, and lacked an input in each of them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from truing.doctor.rule import Rule
from truing.types.step_table import StepNumbers


class Coverage:
    """Which rules have checked a step of a stage, and what the others lacked."""

    def __init__(self) -> None:
        self._checked: dict[str, set[str]] = {}
        self._lacked: dict[str, dict[str, Sequence[str]]] = {}

    def add(self, stage: str, code: str, missing: Sequence[str]) -> None:
        """Count a rule that applied to a step; ``missing`` are the inputs that it lacked there, as text."""
        if missing:
            self._lacked.setdefault(stage, {})[code] = list(missing)
        else:
            self._checked.setdefault(stage, set()).add(code)

    def add_recorded(self, step: StepNumbers, rules: Iterable[Rule]) -> None:
        """Count what a step of the record lets rules check; streams of tokens count as there."""
        checked = self._checked.setdefault(step.stage, set())
        checked.update(rule.code for rule in rules if rule.code not in checked and _has_numbers(rule, step))

    def never_checked(self) -> dict[str, dict[str, Sequence[str]]]:
        """Return the rules that checked no step of a stage, with what they lacked: by stage and code."""
        never = {
            stage: {code: each for code, each in lacked.items() if code not in self._checked.get(stage, ())}
            for stage, lacked in self._lacked.items()
        }
        return {stage: lacked for stage, lacked in never.items() if lacked}

    def text(self) -> str:
        """Return what was never checked as one line; "" if everything was."""
        stages = [
            f"{stage}: " + ", ".join(f"{need} ({', '.join(codes)})" for need, codes in by_need(lacked))
            for stage, lacked in self.never_checked().items()
        ]
        return f"not audited: {'; '.join(stages)}" if stages else ""


def _has_numbers(rule: Rule, step: StepNumbers) -> bool:
    """Return whether a step has the facts and metrics that a rule needs."""
    return all(any(_has(each, step) for each in need.split(" | ")) for need in rule.needs)


def _has(need: str, step: StepNumbers) -> bool:
    kind, _, name = need.partition(".")
    if kind == "metrics":
        return math.isfinite(step.metrics.get(name, math.nan))
    return kind != "facts" or name in step.facts


def by_need(lacked: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Return each rule once, under the input that most remaining rules lack, for few entries."""
    left, found = dict(lacked), list[tuple[str, list[str]]]()
    while left:
        ((need, _),) = Counter(need for missing in left.values() for need in missing).most_common(1)
        codes = [code for code, missing in left.items() if need in missing]
        found.append((need, codes))
        left = {code: missing for code, missing in left.items() if code not in codes}
    return found
