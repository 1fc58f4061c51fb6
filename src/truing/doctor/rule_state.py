"""What a rule says of a step, and of all steps so far."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from truing.doctor.evidence import Step
from truing.doctor.rule import Rule
from truing.doctor.verdict import VERDICT_ORDER, Claim, Finding, Marks, RuleResult, Span, Verdict
from truing.utils.format import with_count


@dataclass(frozen=True)
class Checked:
    """What a rule says of a step that it applies to."""

    findings: tuple[Finding, ...] = ()
    lacking: tuple[str, ...] = ()  # inputs, as text, without which the step is not or not wholly judged


def check(step: Step, rule: Rule) -> Checked | None:
    """Return what a rule says of a step; None if it does not apply to it."""
    if not rule.applies(step):
        return None
    if missing := step.missing(rule.needs):
        return Checked(lacking=tuple(missing))
    claims = list(rule.judge(step))
    return Checked(
        tuple(_finding(rule, step, each) for each in claims if each.verdict is not Verdict.NOT_CHECKED),
        tuple(each.what for each in claims if each.verdict is Verdict.NOT_CHECKED),
    )


def examine(step: Step, rules: Iterable[Rule]) -> list[Finding]:
    """Return the findings of rules in a step."""
    return [each for rule in rules if (checked := check(step, rule)) for each in checked.findings]


def _finding(rule: Rule, step: Step, claim: Claim) -> Finding:
    """Return a claim with its place."""
    sample = "" if claim.row is None else step.samples[claim.row].sample_id
    place = step.stage, step.step
    marks, before = _marks(step, claim), step.steps_of_run
    return Finding(rule.code, rule.name, *place, claim, sample, marks, steps_before=before)


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

    def texts(self) -> tuple[str, ...]:
        """Return each input with what was wrong with it."""
        where = f"not finite in {with_count(self.steps, 'step')}, the first of them {self.first}"
        return tuple(f"{name} ({where})" for name in self.names)


@dataclass
class RuleState:
    """What a rule found and lacked in the steps so far."""

    rule: Rule
    findings: list[Finding] = field(default_factory=list[Finding])
    steps_checked: int = 0  # with all inputs
    lacking: tuple[str, ...] = ()  # at the last step that lacked an input
    not_finite: NotFinite | None = None
    error: str = ""  # that the rule raised: it judges no further step
    last_checked: dict[str, int] = field(default_factory=dict[str, int])
    """The last step of each stage with all inputs, of a rule that judges a trend."""
    unjudged: Step | None = None
    """That step, until it is judged."""

    def add(self, step: Step, final: bool) -> Checked | None:
        """Judge a step; None if the rule does not apply to it. ``final``: the last of its stage so far."""
        try:
            checked = self._add_to_trend(step, final) if self.rule.judges_trend else self._add(step)
        except Exception as error:  # noqa: BLE001 - a rule's error must not end a run; the report names it
            self.error = f"{type(error).__name__}: {error} ({step.stage} {step.step + 1})"
            return None
        self.findings += checked.findings if checked else ()
        return checked

    def _add(self, step: Step) -> Checked | None:
        """Judge a step by itself."""
        checked = check(step, self.rule)
        if checked is None:
            return None
        if checked.lacking:
            self.lacking = checked.lacking
            self._count_not_finite(step)
        else:
            self.steps_checked += 1
        return checked

    def _add_to_trend(self, step: Step, final: bool) -> Checked | None:
        """Judge a stage when it ends: at its last step that has all inputs."""
        if self.rule.applies(step):
            self.lacking = tuple(step.missing(self.rule.needs))
            if self.lacking:
                self._count_not_finite(step)
            else:
                self.steps_checked += 1
                self.last_checked[step.stage], self.unjudged = step.step, step
        last = self.unjudged
        if not final or last is None or last.stage != step.stage:
            return None
        self.unjudged, checked = None, check(last, self.rule)
        self.lacking = checked.lacking if checked else ()
        return checked

    def _count_not_finite(self, step: Step) -> None:
        """Count a step with an input that is NaN or infinite."""
        if names := step.not_finite(self.rule.needs):
            first = self.not_finite or NotFinite(tuple(names), f"{step.stage} {step.step + 1}")
            self.not_finite = replace(first, steps=first.steps + 1)

    def result(self, suppressed: str) -> RuleResult | None:
        """Return the result over all steps; None if the rule applied to none.

        Args:
            suppressed: the recipe's reason why its findings do not count, or "".
        """
        code, findings = self.rule.code, self.current_findings()
        if self.error and not findings:
            return RuleResult(code, Verdict.NOT_CHECKED, missing=(RULE_ERROR.format(self.error),))
        if findings:
            verdict = min((each.claim.verdict for each in findings), key=VERDICT_ORDER.index)
            return RuleResult(code, verdict, self.steps_checked, findings, (), suppressed)
        if not self.steps_checked and not self.lacking:
            return None
        unknown = self._unknown()
        verdict = Verdict.NOT_CHECKED if unknown else Verdict.CLEAN
        return RuleResult(code, verdict, self.steps_checked, (), unknown, suppressed)

    def current_findings(self) -> tuple[Finding, ...]:
        """Return the findings; for a rule that judges a trend, those that hold at the last step."""
        if not self.rule.judges_trend:
            return tuple(self.findings)
        return tuple(each for each in self.findings if self.last_checked.get(each.stage) == each.step)

    def _unknown(self) -> tuple[str, ...]:
        """Return the inputs without which the rule cannot be clean."""
        if self.not_finite:
            return self.not_finite.texts()
        judged = self.steps_checked and not self.rule.judges_trend
        return () if judged else self.lacking


RULE_ERROR = "a working rule: it raised {}, which is a fault of Truing; please report it"
"""The missing input of a rule that raised an error."""
