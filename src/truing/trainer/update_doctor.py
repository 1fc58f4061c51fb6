"""Measures each update for the doctor, and logs what the doctor finds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from truing.doctor.evidence import Step
from truing.doctor.live_doctor import LiveDoctor, finding_event
from truing.doctor.report.first_updates import boundary_lines
from truing.doctor.report.recorded_findings import current_findings
from truing.doctor.verdict import Finding, Verdict
from truing.instrumentation.audit_schedule import AUDITED_FAMILIES, AuditSchedule
from truing.instrumentation.draw_audit import draw_replay_facts
from truing.instrumentation.gradient_sum_check import backward_sum_facts
from truing.instrumentation.optimizer_moments import moment_facts
from truing.instrumentation.prompt_check import prompt_facts
from truing.instrumentation.sample_usage import usage_facts
from truing.instrumentation.task_order import task_order_fact
from truing.instrumentation.update_facts import update_facts, value_facts
from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep
from truing.record import RunReader
from truing.rollouts.step_samples import StepSamples
from truing.trainer.events import EventLog, logs_boundary
from truing.trainer.reward_definition import reward_weights
from truing.trainer.session import Session
from truing.trainer.step_record import tool_names
from truing.utils.phase_clock import phase


class UpdateDoctor:
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

    @contextmanager
    def measured(self, learner: Learner, update_index: int) -> Iterator[dict[str, Any]]:
        """Yield the facts of the update within the block: its weights, moments and optimizer step."""
        with update_facts(learner, update_index) as facts, moment_facts(learner, update_index, facts):
            yield facts

    def sample_facts(
        self,
        session: Session,
        learner: Learner,
        update: tuple[str, int],
        samples: StepSamples,
        steps: Sequence[OptimizerStep],
    ) -> dict[str, Any]:
        """Return facts on how an update, a stage and a step, used its samples; after its last backward."""
        (stage, step), rows = update, [*samples.samples, *samples.untrained]
        sampler = session.sampler
        facts = self.audit_schedule.cost_fact(samples, steps)
        if "value_gradient" in steps[0].streams:
            lora = session.recipe.lora
            dropout = bool(lora and lora.dropout > 0)
            facts["value"] = value_facts(steps[0], learner.setting, dropout=dropout)
        with phase("doctor"):
            facts |= usage_facts(sampler, learner.setting, step, samples, steps)
            # test for missing gradients until one step of the stage reports them
            is_tested = any(
                "silent" in past.get("backward_sums", {}) for past in self.live_doctor.facts(stage)
            )
            facts |= backward_sum_facts(learner, steps, test_missing=not is_tested)
            if sampler.engine.draws == "inversion":
                facts |= draw_replay_facts(steps[0], steps[0].samples, rows)
            facts["prompts"] = prompt_facts(sampler.chat, sampler.train_tasks, rows)
            facts["tasks"] = task_order_fact(sampler, learner.setting, stage, step, samples.rollouts)
        return facts

    def log(self, evidence: Step, findings: Sequence[Finding]) -> None:
        """Log what the doctor found in an update; some findings request an audit of the next one."""
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
