"""Rules over steps: every verdict, and its report."""

from collections.abc import Iterable, Mapping, Sequence

from truing.doctor.coverage import Coverage
from truing.doctor.evidence import Step
from truing.doctor.rule import Rule
from truing.doctor.rule_state import RuleState
from truing.doctor.rules import RULES
from truing.doctor.verdict import FINDING_VERDICTS, STRONG_VERDICTS, VERDICT_ORDER, Finding, RuleResult
from truing.errors import RecipeError


def select_rules(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Rule]:
    """Return rules by code or family (`MSK`); all if nothing is selected."""
    for code in (*select, *ignore):
        if not any(name.startswith(code) for name in RULES):
            raise RecipeError(
                "there is no such rule",
                got=code,
                expected="a code or a family",
                remedy="`truing rules` lists all",
            )
    picked = [rule for code, rule in RULES.items() if not select or code.startswith(tuple(select))]
    return [rule for rule in picked if not (ignore and rule.code.startswith(tuple(ignore)))]


class Diagnosis:
    """Results over the steps so far."""

    def __init__(self, rules: Iterable[Rule], suppressed: Mapping[str, str] = {}) -> None:
        """Begin without a step. ``suppressed`` has rules of which no finding counts, each with the reason."""
        self.suppressed = suppressed
        self.coverage = Coverage()
        self._states = {rule.code: RuleState(rule) for rule in rules}

    @property
    def rules(self) -> list[Rule]:
        """Return the rules."""
        return [each.rule for each in self._states.values()]

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """Return all findings by rule, also suppressed ones."""
        return {code: tuple(each.findings) for code, each in self._states.items() if each.findings}

    @property
    def rule_errors(self) -> dict[str, str]:
        """Return the rules that raised an error, each with the error."""
        return {code: each.error for code, each in self._states.items() if each.error}

    def add(self, step: Step, final: bool = True) -> list[Finding]:
        """Judge a step; return its findings that are not suppressed, most specific cause first.

        Args:
            step: a step, after all those before.
            final: whether it is the last of its stage so far; only then rules judge the trend of the stage.
        """
        findings: list[Finding] = []
        for code, state in self._states.items():
            checked = None if state.error else state.add(step, final)
            if checked is None:
                continue
            if not state.rule.judges_trend:  # a trend needs steps, not audits
                self.coverage.add(step.stage, code, checked.lacking)
            if code not in self.suppressed:
                findings += checked.findings
        return ranked(findings)

    def add_recorded(self, finding: Finding) -> None:
        """Add a finding between steps, which only its event records: no step can be judged again."""
        if state := self._states.get(finding.code):
            state.findings.append(finding)
            state.steps_checked += 1

    def replace(self, finding: Finding, by: Finding) -> None:
        """Replace a finding by the same with more on it."""
        findings = self._states[finding.code].findings
        findings[findings.index(finding)] = by

    def forget_findings(self) -> None:
        """Drop the findings so far: those of a rule may come back in each of a million steps."""
        for state in self._states.values():
            state.findings.clear()

    def results(self) -> list[RuleResult]:
        """Return one result for each rule that checked a step, or lacked an input."""
        every = (state.result(self.suppressed.get(code, "")) for code, state in self._states.items())
        return [each for each in every if each is not None]


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Sort by strongest verdict; among equals by earliest step, then by most specific cause."""
    return sorted(
        findings,
        key=lambda finding: (
            VERDICT_ORDER.index(finding.claim.verdict),
            finding.steps_before,
            -finding.claim.specificity,
            finding.code,
        ),
    )


def is_finding(result: RuleResult) -> bool:
    """Return whether a rule has a finding, and is not suppressed."""
    return result.verdict in FINDING_VERDICTS and not result.suppressed


def fails(result: RuleResult, strict: bool) -> bool:
    """Return whether a result fails a check; a SUSPECT fails a strict one alone."""
    return is_finding(result) and (strict or result.verdict in STRONG_VERDICTS)
