"""Rules over steps: every verdict, and its report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from truing.doctor.coverage import Coverage
from truing.doctor.evidence import Step
from truing.doctor.rule import Rule
from truing.doctor.rules import RULES
from truing.doctor.verdict import (
    FINDING_VERDICTS,
    STRONG_VERDICTS,
    VERDICT_ORDER,
    Claim,
    Finding,
    Marks,
    RuleResult,
    Span,
    Verdict,
)
from truing.errors import RecipeError
from truing.utils.format import with_count


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


def examine(
    step: Step, rules: Iterable[Rule], final: bool = True
) -> tuple[list[Finding], dict[str, list[str]]]:
    """Return the findings of rules in a step, and what each rule that applies to it lacks, by code.

    Without missing inputs a rule has judged the step. A rule that does not apply to it has no entry.

    Args:
        step: a step.
        rules: to apply.
        final: whether it is the last of its stage so far; only then rules judge the trend of the stage.
    """
    findings, missing = [], {}
    for rule in rules:
        if not rule.applies(step):
            continue
        missing[rule.code] = step.missing(rule.needs)
        if missing[rule.code] or (rule.judges_trend and not final):
            continue
        for claim in rule.judge(step):
            if claim.verdict is Verdict.NOT_CHECKED:
                missing[rule.code].append(claim.what)
                continue
            sample = "" if claim.row is None else step.samples[claim.row].sample_id
            marks = _marks(step, claim)
            findings.append(Finding(rule.code, rule.name, step.stage, step.step, claim, sample, marks))
    return findings, missing


def _marks(step: Step, claim: Claim) -> Marks:
    """Return the marked tokens of a claim, by sample."""
    if claim.row is None:
        return {}
    marks: dict[str, tuple[tuple[int, int], ...]] = {step.samples[claim.row].sample_id: ()}
    spans = claim.spans or (Span(claim.row, claim.start, claim.end),)
    for row, start, end in (each for each in spans if each.end > each.start):
        name = step.samples[row].sample_id
        marks[name] = (*marks.get(name, ()), (start, end))
    return marks


@dataclass(frozen=True)
class NotFinite:
    """Inputs of a rule that were NaN or infinite."""

    names: tuple[str, ...]  # as text, at the first such step
    first: str  # stage and step, from 1
    steps: int = 0

    def and_one_more(self) -> "NotFinite":
        """Return the same, for one more step."""
        return replace(self, steps=self.steps + 1)

    def texts(self) -> tuple[str, ...]:
        """Return each input with what was wrong with it."""
        where = f"not finite in {with_count(self.steps, 'step')}, the first of them {self.first}"
        return tuple(f"{name} ({where})" for name in self.names)


@dataclass
class Diagnosis:
    """Results over the steps so far."""

    rules: Sequence[Rule]
    suppressed: Mapping[str, str] = field(default_factory=dict[str, str])
    findings: dict[str, list[Finding]] = field(default_factory=dict[str, list[Finding]])
    steps_checked: dict[str, int] = field(default_factory=dict[str, int])  # with all inputs of a rule
    missing_inputs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    rule_errors: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # rules that raised an error, and the error
    last_checked: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """The last checked step of each rule and stage."""
    not_finite: dict[str, NotFinite] = field(default_factory=dict[str, NotFinite])
    """Rules with an input that was NaN or infinite."""
    unjudged: dict[tuple[str, str], Step] = field(default_factory=dict[tuple[str, str], Step])
    """The last step with all inputs of a rule that judges a trend, until it is judged."""
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, step: Step, final: bool = True) -> list[Finding]:
        """Check a step; return its findings that are not suppressed, most specific cause first.

        Args:
            step: a step, after all those before.
            final: whether it is the last of its stage so far.
        """
        every: list[Finding] = []
        for rule in self.rules:
            if rule.code in self.rule_errors:
                continue
            try:
                every += self._judge(rule, step, final)
            except Exception as error:  # noqa: BLE001 - a rule's error must not end a run; the report names it
                self.rule_errors[rule.code] = (
                    f"{type(error).__name__}: {error} ({step.stage} {step.step + 1})"
                )
        for finding in every:
            self.findings.setdefault(finding.code, []).append(finding)
        return ranked([finding for finding in every if finding.code not in self.suppressed])

    def _judge(self, rule: Rule, step: Step, final: bool) -> list[Finding]:
        """Return the findings of a rule; a trend is judged at the last step of a stage with all inputs."""
        code, place = rule.code, (rule.code, step.stage)
        findings, missing = examine(step, [rule], final)
        if missing and not rule.judges_trend:  # a trend needs steps, not audits
            self.coverage.add(step.stage, code, missing[code])
        if missing and (names := step.not_finite(rule.needs)):
            first = NotFinite(tuple(names), f"{step.stage} {step.step + 1}")
            self.not_finite[code] = self.not_finite.get(code, first).and_one_more()
        if missing and not step.missing(rule.needs):
            self.steps_checked[code] = self.steps_checked.get(code, 0) + (missing[code] == [])
            self.last_checked[place], self.unjudged[place] = step.step, step
        last = self.unjudged.pop(place, step) if final or not rule.judges_trend else step
        if last is not step:
            findings, missing = examine(last, [rule])
        if lacking := missing.get(code):
            self.missing_inputs[code] = lacking
        elif missing and rule.judges_trend:
            self.missing_inputs.pop(code, None)
        return findings

    def add_recorded(self, finding: Finding) -> None:
        """Add a finding between steps, which only its event records: no step can be judged again."""
        if any(rule.code == finding.code for rule in self.rules):
            self.findings.setdefault(finding.code, []).append(finding)
            self.steps_checked[finding.code] = self.steps_checked.get(finding.code, 0) + 1

    def current_findings(self, rule: Rule) -> tuple[Finding, ...]:
        """Return the findings of a rule; for one that judges a trend, those that hold at the last step."""
        findings = self.findings.get(rule.code, ())
        if not rule.judges_trend:
            return tuple(findings)
        return tuple(each for each in findings if self.last_checked.get((rule.code, each.stage)) == each.step)

    def results(self) -> list[RuleResult]:
        """Return one result for each rule that checked a step, or lacked an input."""
        results = []
        for rule in self.rules:
            code, findings = rule.code, self.current_findings(rule)
            if code in self.rule_errors and not findings:
                results.append(
                    RuleResult(
                        code, Verdict.NOT_CHECKED, missing=(RULE_ERROR.format(self.rule_errors[code]),)
                    )
                )
                continue
            if code not in self.steps_checked and code not in self.missing_inputs:
                continue
            checked_steps, unknown = self.steps_checked.get(code, 0), self._unknown(rule)
            results.append(
                RuleResult(
                    code,
                    min((finding.claim.verdict for finding in findings), key=VERDICT_ORDER.index)
                    if findings
                    else Verdict.NOT_CHECKED
                    if unknown
                    else Verdict.CLEAN,
                    checked_steps,
                    findings,
                    () if findings else unknown,
                    self.suppressed.get(code, ""),
                )
            )
        return results

    def _unknown(self, rule: Rule) -> tuple[str, ...]:
        """Return the inputs without which a rule cannot be clean."""
        if rule.code in self.not_finite:
            return self.not_finite[rule.code].texts()
        judged = self.steps_checked.get(rule.code, 0) and not rule.judges_trend
        return () if judged else tuple(self.missing_inputs.get(rule.code, ()))


RULE_ERROR = "a working rule: it raised {}, which is a fault of Truing; please report it"
"""The missing input of a rule that raised an error."""


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Sort by strongest verdict; among equals by earliest step, then by most specific cause.

    Findings of a stage must be in the order of its steps, and stages in that of the run.
    """
    each = list(findings)
    stages = list(dict.fromkeys(finding.stage for finding in each))
    return sorted(
        each,
        key=lambda finding: (
            VERDICT_ORDER.index(finding.claim.verdict),
            stages.index(finding.stage),
            finding.step,
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
