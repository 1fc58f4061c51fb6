"""The doctor during a run: it judges each step once, directly after its record."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from truing.analysis.stage_gain import StageGain
from truing.config import Recipe
from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import Step
from truing.doctor.history import History
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES
from truing.doctor.truing_run import setup_of
from truing.doctor.verdict import Claim, Finding, Verdict
from truing.errors import ProvenError, PublicationError
from truing.types.facts import Facts
from truing.types.sampling_params import SamplingParams
from truing.types.step_table import StepNumbers, StepTable


class LiveDoctor:
    """State across steps: numbers and facts of earlier ones, and reported findings."""

    def __init__(
        self,
        recipe: Recipe,
        sampling_params: SamplingParams,
        bos_id: int | None,
        tools: Sequence[str],
        rewards: Mapping[str, float],
    ) -> None:
        self.sampling_params, self.bos_id, self.tools, self.rewards = sampling_params, bos_id, tools, rewards
        self.diagnosis = Diagnosis(select_rules(), recipe.doctor.suppress)
        self.history = History()
        self.reported: set[tuple[str, str, str]] = set()  # rule, verdict, stage
        self.last: Step | None = None

    def restore(self, steps: Iterable[StepNumbers], reported: Iterable[tuple[str, str, str, int]]) -> None:
        """Begin with the record, for a resumed or rolled-back run.

        Args:
            steps: the recorded steps.
            reported: code, verdict, stage and step of their findings.
        """
        self.history = History()
        for step in steps:
            self.history.add(step)
            self.diagnosis.coverage.add_recorded(step, self.diagnosis.rules)
        broken = {each for each in self.reported if not each[1]}
        self.reported = {(code, verdict, stage) for code, verdict, stage, _ in reported} | broken

    def facts(self, stage: str) -> list[Facts]:
        """Return the facts of the kept steps of a stage, oldest first."""
        return [each.facts for each in self.history.past if each.stage == stage]

    def diagnose(self, table: StepTable, recipe: Recipe) -> tuple[Step, list[Finding]]:
        """Judge a step; return it as it was judged, and new findings in its stage, most specific cause first.

        A proof after a suspicion of the same rule is new.
        """
        setup = setup_of(recipe, table.stage, self.sampling_params, self.bos_id, self.tools, self.rewards)
        step = Step.of(table, setup, self.history)
        findings = self.diagnosis.add(step)
        self.diagnosis.forget_findings()
        self.history.add(table)
        self.last = step
        firsts = {each.code: each for each in reversed(findings)}  # the most specific claim of a rule
        places = {code: (code, str(each.claim.verdict), table.stage) for code, each in firsts.items()}
        new = [
            each for each in findings if firsts[each.code] is each and places[each.code] not in self.reported
        ]
        self.reported |= set(places.values())
        return step, new

    def diagnose_evaluation(self, gain: StageGain | None) -> list[Finding]:
        """Return what the evaluation after the last step shows: it was judged before."""
        if self.last is None:
            return []
        rules = [rule for rule in self.diagnosis.rules if "gain" in rule.needs]
        findings = examine(replace(self.last, gain=gain), rules)
        return [each for each in findings if each.code not in self.diagnosis.suppressed]

    def rule_failures(self) -> list[str]:
        """Return rules that raised an error, with it; each is reported once."""
        broken = self.diagnosis.rule_errors
        new = [code for code in broken if (code, "", "") not in self.reported]
        self.reported |= {(code, "", "") for code in new}
        return [f"{code} was not checked: {broken[code]}; it is left out from here on" for code in new]


def stop_if_proven(findings: Sequence[Finding]) -> None:
    """Raise on a proven finding: training stops after a bug."""
    for finding in findings:
        if finding.claim.verdict is Verdict.PROVEN:
            raise ProvenError(
                f"{finding.code} {finding.name}: {finding.claim.what} ({finding.where})",
                got=finding.claim.got or None,
                expected=finding.claim.expected or None,
                remedy=f"`truing explain {finding.code}` explains the fault and its fix; this step"
                " ran, and no"
                f" checkpoint has it. If it is intended: [doctor.suppress] {finding.code} = the reason",
            )


PUBLICATION_CODE = "SMP011"
"""The rule that a publication breaks if it fails its proof."""


def publication_finding(error: PublicationError, stage: str, step: int) -> Mapping[str, object]:
    """Return the event of a publication that failed its proof: there is no step that a rule could judge."""
    claim = Claim(
        Verdict.PROVEN, error.what, got=str(error.got), expected=str(error.expected), remedy=error.remedy
    )
    return finding_event(Finding(PUBLICATION_CODE, RULES[PUBLICATION_CODE].name, stage, step, claim))


def finding_event(finding: Finding) -> Mapping[str, object]:
    """Return a finding as the fields of an event."""
    claim = finding.claim
    text = f"{claim.verdict} {finding.code} {finding.name}: {claim.what} ({finding.where})"
    return {
        "code": finding.code,
        "name": finding.name,
        "verdict": str(claim.verdict),
        "stage": finding.stage,
        "step": finding.step,
        "sample_id": finding.sample_id,
        "start": claim.start,
        "end": claim.end,
        "marks": finding.marks,
        "what": claim.what,
        "got": claim.got,
        "expected": claim.expected,
        "remedy": claim.remedy or RULES[finding.code].section("Fix"),
        "log10_odds": claim.log10_odds,
        "text": text,
    }
