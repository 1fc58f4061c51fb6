"""A rule's findings over steps as one: the clearest, the first, and the number of steps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from truing.doctor.diagnosis import ranked
from truing.doctor.verdict import FINDING_VERDICTS, Finding
from truing.utils.format import with_count


@dataclass(frozen=True)
class RuleFindings:
    """The findings of one rule."""

    shown: Finding  # the strongest, of equals the earliest
    first: Finding  # the earliest, even if only suspected: later numbers may be wrong
    steps: int  # with a finding

    @property
    def repeats(self) -> str:
        """Return the first step and the number of steps as text, if they differ from the place shown."""
        moved = step_of(self.first) != step_of(self.shown)
        since = f", first {self.first.claim.verdict} at {self.first.where}" if moved else ""
        return since + (f", in {with_count(self.steps, 'step')}" if self.steps > 1 else "")


def findings_by_rule(findings: Iterable[Finding], suppressed: Mapping[str, str] = {}) -> list[RuleFindings]:
    """Return one for each rule that is not suppressed, the strongest verdict first.

    Args:
        findings: of a run, those of a rule in the order of its steps.
        suppressed: rules to leave out.
    """
    by_code: dict[str, list[Finding]] = {}
    for each in findings:
        if each.code not in suppressed:
            by_code.setdefault(each.code, []).append(each)
    strongest = ranked(ranked(findings_of_rule)[0] for findings_of_rule in by_code.values())
    return [_rule_findings(each, by_code[each.code]) for each in strongest]


def _rule_findings(strongest: Finding, findings: list[Finding]) -> RuleFindings:
    # a CANNOT TELL or a FACT taints nothing: it also occurs in healthy runs
    counts = [each for each in findings if each.claim.verdict in FINDING_VERDICTS] or findings
    return RuleFindings(strongest, counts[0], len({step_of(each) for each in counts}))


def step_of(finding: Finding) -> tuple[str, int]:
    """Return the step of a finding."""
    return finding.stage, finding.step
