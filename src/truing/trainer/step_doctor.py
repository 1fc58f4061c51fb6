"""The doctor of a run: what it has seen, which audits are due, and the log of what it finds."""

from collections.abc import Sequence
from typing import cast

from truing.analysis.stage_gain import stage_evaluations, stage_gain
from truing.doctor.evidence import Step
from truing.doctor.live_doctor import LiveDoctor, finding_event
from truing.doctor.report.first_steps import boundary_lines
from truing.doctor.report.recorded_findings import current_findings
from truing.doctor.verdict import Finding, Verdict
from truing.measurements.audit_schedule import AUDITED_FAMILIES, AuditSchedule
from truing.record import Event, RunReader
from truing.trainer.events import EventLog, logs_boundary
from truing.trainer.reward_definition import reward_weights
from truing.trainer.session import Session
from truing.trainer.step_record import tool_names


class StepDoctor:
    """The doctor of a run, with its schedule of audits and the log of its findings."""

    def __init__(self, session: Session, event_log: EventLog) -> None:
        self.declared_recipe, self.event_log = session.recipe, event_log
        self.tokenizer = session.policy.loaded.tokenizer
        self.live_doctor = LiveDoctor(
            session.recipe,
            session.sampler.sampling_params,
            cast("int | None", self.tokenizer.bos_token_id),  # transformers gives no type
            tool_names(session.sampler.train_tasks),
            reward_weights(session.sampler.env.rewards),
        )
        self.audit_schedule = AuditSchedule(session.recipe.doctor.budget)

    def restore(self, stage: str, reader: RunReader) -> None:
        """Rebuild the doctor's state and the audit schedule from the recorded steps and findings."""
        findings = current_findings(reader.events())
        self.live_doctor.restore(reader.iter_steps(), findings)
        requesting = [
            step for code, _, of, step in findings if of == stage and code.startswith(AUDITED_FAMILIES)
        ]
        self.audit_schedule = AuditSchedule(
            self.declared_recipe.doctor.budget,
            (row.facts for row in reader.iter_steps() if row.stage == stage),
            requested_in=max(requesting, default=-1),
        )

    def log_not_audited(self) -> None:
        """Log what was never looked at, if anything was: then silence does not say that it is right."""
        if text := self.live_doctor.diagnosis.coverage.text():
            self.event_log.log("note", text=text)

    def log_evaluation(self, stage: str, events: Sequence[Event]) -> None:
        """Log what the evaluation after a stage shows."""
        gain = stage_gain(stage_evaluations(stage, self.declared_recipe.stages, events))
        for finding in self.live_doctor.diagnose_evaluation(gain):
            self.event_log.log("finding", **finding_event(finding))

    def log(self, evidence: Step, findings: Sequence[Finding]) -> None:
        """Log what the doctor found in a step; some findings request an audit of the next one."""
        stage, step = evidence.stage, evidence.step
        if logs_boundary(self.declared_recipe.seed, stage, step):
            self.event_log.log_boundary(stage, step, boundary_lines(evidence, self.tokenizer))
        for finding in findings:
            kind = "fact" if finding.claim.verdict is Verdict.FACT else "finding"
            self.event_log.log(kind, **finding_event(finding))
            if finding.code.startswith(AUDITED_FAMILIES):
                self.audit_schedule.request()
        for name in evidence.facts.get("not_audited", ()):
            text = f"memory ran out in the audit {name!r}, which is left out here: lower optimizer.memory"
            self.event_log.log("incident", what="memory", stage=stage, step=step, text=text)
        for text in self.live_doctor.rule_failures():
            self.event_log.log("incident", what="rule", stage=stage, step=step, text=text)
