"""The training loop: stages, steps, evaluations, checkpoints, guard rollbacks and resume of a run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from truing.analysis.current_events import mid_stage_name
from truing.analysis.estimate import pass_at_json
from truing.analysis.evaluation import Evaluation
from truing.config import Recipe, recipe_after_rollbacks
from truing.doctor.live_doctor import LiveDoctor, finding_event, publication_finding, stop_if_proven
from truing.doctor.report.first_updates import boundary_lines
from truing.doctor.report.recorded_findings import current_findings
from truing.doctor.verdict import Verdict
from truing.errors import GuardError, PublicationError, Unstable
from truing.instrumentation.audit_schedule import AUDITED_FAMILIES, AuditSchedule
from truing.instrumentation.draw_audit import draw_replay_facts
from truing.instrumentation.gradient_sum_check import backward_sum_facts
from truing.instrumentation.optimizer_moments import moment_facts
from truing.instrumentation.prompt_check import prompt_facts, prove_evaluated
from truing.instrumentation.reference_sync_check import reference_sync_fact
from truing.instrumentation.sample_usage import usage_facts
from truing.instrumentation.update_facts import update_facts, value_facts
from truing.learner import checkpoint
from truing.learner.coefficients import LossCoefficients
from truing.learner.learner import Learner, open_learner
from truing.learner.memory_budget import MemoryBudget
from truing.learner.session import Session
from truing.learner.step import train_step
from truing.models.forward.score import causal_model
from truing.record import RunReader, RunWriter, SampleRow, StepRow, archive_undone
from truing.trainer.collector import CollectedStep, Collector
from truing.trainer.events import EventLog, logs_boundary
from truing.trainer.guard import REPORT_FILE, instability, last_good_step, rollback_report
from truing.trainer.interrupts import DeferredInterrupt
from truing.trainer.result import TrainResult, evaluations_of
from truing.trainer.step_record import reward_weights, step_record, tool_names
from truing.types.batch import StepRecord
from truing.utils.atomic_files import write_atomically
from truing.utils.memory import reset_peak
from truing.utils.phase_clock import PhaseClock, phase


class Loop:
    """Trains the stages of a recipe and records every step; keeps the state of the run between steps."""

    def __init__(
        self, session: Session, writer: RunWriter, out: Path, memory_budget: MemoryBudget, event_log: EventLog
    ) -> None:
        self.session, self.writer, self.out, self.memory_budget = session, writer, out, memory_budget
        self.declared_recipe = session.recipe  # a guard may change ``session.recipe`` within a stage
        self.event_log = event_log
        self.checkpoints = out / "checkpoints"
        self.evaluations: dict[str, Evaluation] = {}
        on_cuda = causal_model(session.policy).device.type == "cuda"
        self.clock = PhaseClock(torch.cuda.synchronize) if on_cuda else PhaseClock()
        self.coefficients = LossCoefficients.initial(self.declared_recipe)
        bos = session.loaded.tokenizer.bos_token_id
        rewards = reward_weights(session.env.rewards)
        self.doctor = LiveDoctor(
            self.declared_recipe, session.sampling_params, bos, tool_names(session), rewards
        )
        self.audit_schedule = AuditSchedule(self.declared_recipe.doctor.budget)
        self.pending_facts: dict[str, Any] = {}  # facts between two updates, recorded with the next
        self.collector: Collector | None = None  # of the current stage
        self.interrupt = DeferredInterrupt()
        self.rollbacks = 0  # of the current stage
        self.history: list[Mapping[str, float]] = []  # metrics of the current stage, by step

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the current stage, with the guard's changes."""
        return self.session.recipe

    def train(self, resume: bool) -> TrainResult:
        """Train all stages, from the start or from the newest checkpoint; return the evaluations."""
        stages = self.declared_recipe.stages
        first_stage, first_step = self.restore() if resume else (stages[0], 0)
        if resume:
            suppress = self.declared_recipe.doctor.suppress
            self.event_log.log("resumed", stage=first_stage, step=first_step, suppress=suppress)
        self.event_log.log("memory", **asdict(self.memory_budget))
        if self.declared_recipe.eval.base and "base" not in self.evaluations:
            self.evaluate("base", first_stage, 0)

        for stage in stages[stages.index(first_stage) :]:
            self.train_stage(stage, first_step if stage == first_stage else 0)
            if f"after_{stage}" not in self.evaluations:
                self.evaluate(f"after_{stage}", stage, self.recipe.stage(stage).steps)

        result = TrainResult(self.out, self.evaluations)
        estimates = {name: asdict(estimate) for name, estimate in result.estimates().items()}
        self.event_log.log("finished", estimates=estimates)
        return result

    def train_stage(self, stage: str, step: int) -> None:
        """Train one stage, of which ``step`` steps are done."""
        learner = self.open_stage(stage, step)
        steps = self.recipe.stage(stage).steps
        self.event_log.log("stage", stage=stage, steps=steps, first_step=step)
        self.clock.pop_seconds()  # drop time spent after the previous stage's last step
        while step < steps:
            if reason := self.guarded_step(learner, stage, step):
                step = self.roll_back(learner, stage, step, reason)
                continue
            step += 1

            with reference_sync_fact(learner, step, self.pending_facts):
                if learner.sync_reference(step):
                    self.event_log.log(
                        "reference", stage=stage, step=step - 1, **learner.reference_sync_facts()
                    )

            with self.interrupt:
                # evaluate before saving: a run killed between the two repeats the step and the evaluation
                if step < steps and self.recipe.eval.every and step % self.recipe.eval.every == 0:
                    self.evaluate(mid_stage_name(stage, step), stage, step)
                due = self.recipe.checkpoint_every and step % self.recipe.checkpoint_every == 0
                if step == steps or due or self.interrupt.requested:
                    self.save(learner, stage, step)
            self.interrupt.raise_if_requested()
        self.close_collector()

    def open_collector(self, learner: Learner, stage: str) -> None:
        """Collect the stage's steps with the current session and recipe from now on."""
        self.close_collector()
        self.collector = Collector(
            self.session, learner, stage, lambda step: self.coefficients.setting(self.recipe, stage, step)
        )

    def close_collector(self) -> None:
        """Collect no further step of the stage."""
        if self.collector is not None:
            self.collector.close()
            self.collector = None

    def open_stage(self, stage: str, step: int) -> Learner:
        """Return the learner of a stage, new or restored from the checkpoint after ``step`` steps."""
        folder = self.checkpoints / checkpoint.CheckpointState(stage, step).name
        state = checkpoint.read_state(folder) if folder.exists() else checkpoint.CheckpointState(stage, 0)
        self.apply_rollbacks(stage, state.rollbacks)
        self.coefficients = (
            LossCoefficients(**state.control) if state.control else LossCoefficients.initial(self.recipe)
        )
        steps = RunReader(self.out).steps()
        self.history = [row.metrics for row in steps if row.stage == stage]
        self.restore_doctor(stage, steps)
        self.pending_facts = dict(state.between)
        learner = open_learner(self.session, stage, self.memory_budget, folder if folder.exists() else None)
        if self.recipe.guard and not folder.exists():
            self.save(learner, stage, 0)
        self.open_collector(learner, stage)
        return learner

    def restore_doctor(self, stage: str, steps: Sequence[StepRow]) -> None:
        """Rebuild the doctor's state and the audit schedule from the recorded steps and findings."""
        findings = current_findings(RunReader(self.out).events())
        self.doctor.restore(steps, findings)
        of_stage = [row for row in steps if row.stage == stage]
        last = of_stage[-1].step if of_stage else -1
        codes = [code for code, _, *update in findings if update == [stage, last]]
        audit_requested = any(code.startswith(AUDITED_FAMILIES) for code in codes)
        self.audit_schedule = AuditSchedule(
            self.declared_recipe.doctor.budget, [row.facts for row in of_stage], requested=audit_requested
        )
        self.event_log.loss_label = steps[-1].loss_label if steps else ""

    def guarded_step(self, learner: Learner, stage: str, step: int) -> str:
        """Run a step; return why the guard must roll it back, or "" if it is stable."""
        guard, setting = self.recipe.guard, self.coefficients.setting(self.recipe, stage, step)
        learner = replace(learner, setting=setting, optimizer_cfg=self.recipe.optimizer)
        try:
            with self.interrupt:
                record = self.step(learner, stage, step)
        except Unstable as error:
            if not guard:
                raise
            return error.what
        self.history.append(record.metrics)
        self.event_log.notify("step", {"record": record, "steps": self.recipe.stage(stage).steps})
        return instability(self.history, guard) if guard else ""

    def roll_back(self, learner: Learner, stage: str, step: int, reason: str) -> int:
        """Restore the stage's last good checkpoint and apply the guard's changes; return its step."""
        guard, before = self.recipe.guard, self.past_rollbacks(stage)
        assert guard
        used_checkpoints = {rollback["to"] for rollback in before}
        to = self.last_good_checkpoint(stage, last_good_step(step, guard), used_checkpoints)
        facts = {"stage": stage, "step": step, "to": to, "reason": reason}
        facts["factor"] = guard.learning_rate**self.rollbacks  # of the learning rates of the failed steps
        facts["recent"] = self.history[-guard.window - 1 :]
        if self.rollbacks == guard.rollbacks:
            self.give_up(facts)
        archive = archive_undone(self.out, stage, to, f"{stage}-{self.rollbacks + 1}")
        self.event_log.log(
            "rollback", **facts, kept=str(archive.relative_to(self.out)), change=list(guard.change)
        )

        self.apply_rollbacks(stage, self.rollbacks + 1)
        state = checkpoint.read_state(self.checkpoints / checkpoint.CheckpointState(stage, to).name)
        saved_recipe = recipe_after_rollbacks(self.declared_recipe, stage, state.rollbacks)
        self.coefficients = LossCoefficients(**state.control).after_rollback(saved_recipe, self.recipe)
        state = replace(state, rollbacks=self.rollbacks, control=asdict(self.coefficients))
        checkpoint.rewind_to(self.checkpoints, state)

        self.writer.truncate_to(stage, to)
        self.history = self.history[:to]
        self.restore_doctor(stage, RunReader(self.out).steps())
        self.evaluations = evaluations_of(RunReader(self.out).events())
        learner.restore(self.checkpoints / state.name)
        self.open_collector(learner, stage)
        self.pending_facts = dict(state.between)
        self.clock.pop_seconds()  # drop the time of the undone steps
        return to

    def apply_rollbacks(self, stage: str, rollbacks: int) -> None:
        """Use the recipe as the guard changes it after ``rollbacks`` rollbacks of the stage."""
        self.rollbacks = rollbacks
        self.session = replace(
            self.session, recipe=recipe_after_rollbacks(self.declared_recipe, stage, rollbacks)
        )

    def past_rollbacks(self, stage: str) -> list[Mapping[str, Any]]:
        """Return the recorded rollbacks of the stage; one that was interrupted and repeated counts once."""
        payloads = [event.payload for event in RunReader(self.out).events() if event.kind == "rollback"]
        rollbacks = {rollback["kept"]: rollback for rollback in payloads if rollback["stage"] == stage}
        return list(rollbacks.values())[: self.rollbacks]

    def give_up(self, last: Mapping[str, Any]) -> None:
        """Write the report of all rollbacks and end the run."""
        rollbacks = self.past_rollbacks(last["stage"])
        report = rollback_report([*rollbacks, {**last, "kept": "."}])
        write_atomically(self.out / REPORT_FILE, report.encode())
        self.event_log.log("gave_up", stage=last["stage"], step=last["step"], reason=last["reason"])
        raise GuardError(
            f"{last['stage']} is unstable after {len(rollbacks)} rollbacks: {last['reason']}",
            remedy=f"read {self.out / REPORT_FILE}; the undone steps are kept",
        )

    def last_good_checkpoint(self, stage: str, at_most: int, used: Collection[int] = ()) -> int:
        """Return the step of the newest regular checkpoint up to ``at_most``; 0 is the stage's start.

        Checkpoints in ``used`` are not used again, except the stage's start.
        """
        interval = self.recipe.checkpoint_every
        steps = [
            step
            for step in checkpoint.saved_steps(self.checkpoints, stage)
            if interval and step % interval == 0
        ]
        return max((step for step in steps if step <= at_most and step not in used), default=0)

    def step(self, learner: Learner, stage: str, step: int) -> StepRecord:
        """Run one step of the stage: sample, train, measure, record, diagnose; return its record."""
        learner.set_learning_rates(step)
        budget_before = learner.memory_budget.fits, learner.memory_budget.fits_recomputed
        reset_peak(causal_model(learner.model).device)

        with self.clock.running():
            step_samples, receipt = self.collect_samples(learner, stage, step)
            all_samples = [*step_samples.samples, *step_samples.untrained]
            update_index = self.weights_version(stage, step)

            with update_facts(learner, update_index) as facts, moment_facts(learner, update_index, facts):
                facts |= self.pending_facts
                if receipt:
                    facts["publication"] = {**receipt, "behind": update_index - receipt["version"]}
                audit = self.audit_schedule.next_audit(self.session, stage, update_index, step_samples, facts)
                traces = train_step(learner, step_samples.samples, (self.recipe.seed, stage, step), audit)

                facts |= self.audit_schedule.cost_fact(step_samples, traces)
                if traces[0].value_gradient:
                    facts["value"] = value_facts(traces[0], learner.setting)
                with phase("doctor"):
                    facts |= usage_facts(self.session, learner.setting, step, step_samples, traces)
                    # test for missing gradients until one step of the stage reports them
                    is_tested = any("silent" in past.get("handed", {}) for past in self.doctor.facts(stage))
                    facts |= backward_sum_facts(learner, traces, test_missing=not is_tested)
                    if self.session.engine.draws == "inversion":
                        facts |= draw_replay_facts(traces[0], all_samples)
                    facts["prompts"] = prompt_facts(self.session, all_samples)

            with phase("record"):
                audits = self.doctor.draw_audits(stage)
                record, label, rows = step_record(
                    stage, step, learner, step_samples, traces, self.clock, facts, audits
                )
                self.writer.write_step(record, rows)

        sampled_rollouts = {
            sample.rollout_id for sample in record.samples if not sample.supervised_mask.any()
        }
        self.coefficients = self.coefficients.next_step(self.recipe, record.metrics, len(sampled_rollouts))

        if (learner.memory_budget.fits, learner.memory_budget.fits_recomputed) != budget_before:
            self.event_log.log_memory(learner.memory_budget, stage, step)
        self.event_log.log_incidents(step_samples.rollouts, stage, step)
        self.event_log.log_engine(self.session.engine.take_incidents(), stage, step)
        self.event_log.log_skipped(traces, stage, step)
        self.event_log.log_over_budget(record)
        self.event_log.log_loss_label(label, stage, step)
        self.diagnose(record, rows)
        return record

    def diagnose(self, record: StepRecord, rows: Sequence[SampleRow]) -> None:
        """Diagnose a recorded update and log what the doctor finds; a proven fault ends the run."""
        with self.clock.running(), phase("doctor"):
            evidence, findings = self.doctor.diagnose(record, rows, self.recipe)
        if logs_boundary(self.declared_recipe.seed, record.stage, record.step):
            lines = boundary_lines(evidence, self.session.loaded.tokenizer)
            self.event_log.log_boundary(record.stage, record.step, lines)
        for finding in findings:
            kind = "fact" if finding.claim.verdict is Verdict.FACT else "finding"
            self.event_log.log(kind, **finding_event(finding))
            self.audit_schedule.requested |= finding.code.startswith(AUDITED_FAMILIES)
        for text in self.doctor.rule_failures():
            self.event_log.log("incident", what="rule", stage=record.stage, step=record.step, text=text)
        if self.declared_recipe.doctor.stop:
            stop_if_proven(findings)

    def collect_samples(self, learner: Learner, stage: str, step: int) -> CollectedStep:
        """Publish the weights and return the samples of a step; if that fails, save the steps before."""
        assert self.collector is not None
        try:
            with self.interrupt.interruptible(), self.publication_findings(stage, step):
                return self.collector.collect(step, self.weights_version(stage, step))
        except Unstable:  # the policy is broken: do not save it
            raise
        except BaseException:  # Ctrl-C included: the parameters are consistent here
            folder = self.checkpoints / checkpoint.CheckpointState(stage, step).name
            if step and not folder.exists():
                self.save(learner, stage, step)
            raise

    @contextmanager
    def publication_findings(self, stage: str, step: int) -> Iterator[None]:
        """Log a publication within the block that fails its proof as a finding."""
        try:
            yield
        except PublicationError as error:
            self.event_log.log("finding", **publication_finding(error, stage, step))
            raise

    def evaluate(self, name: str, stage: str, step: int) -> None:
        """Evaluate the policy after ``step`` steps of a stage, and log the evaluation with every answer."""
        if self.collector is not None:
            self.collector.wait()
        with self.publication_findings(stage, step):
            self.session.publish(self.weights_version(stage, step))
        self.event_log.notify("evaluating", {"name": name, "tasks": self.recipe.eval.tasks})
        evaluation = self.session.evaluate(name, prove_evaluated)
        self.session.engine.release_memory()
        self.evaluations[name] = evaluation
        estimate, pass_at = asdict(evaluation.estimate()), pass_at_json(evaluation.pass_at())
        self.event_log.log("eval", **asdict(evaluation), estimate=estimate, pass_at=pass_at)

    def save(self, learner: Learner, stage: str, step: int) -> None:
        """Write a checkpoint and remove older ones of the stage that neither resume nor the guard needs."""
        if learner.reference is not None:
            learner.reference.check_unchanged()
        state = checkpoint.save(
            self.checkpoints,
            stage,
            step,
            learner.checkpoint_tables(),
            learner.optimizer,
            asdict(self.coefficients),
            self.rollbacks,
            self.pending_facts,
        )
        guard, last = self.recipe.guard, step == self.recipe.stage(stage).steps
        oldest = self.last_good_checkpoint(stage, last_good_step(step, guard)) if guard and not last else step
        for saved_step in checkpoint.saved_steps(self.checkpoints, stage):
            if saved_step < oldest and not (guard and saved_step == 0 and not last):
                checkpoint.remove(self.checkpoints / checkpoint.CheckpointState(stage, saved_step).name)
        self.event_log.log("checkpoint", name=state.name, weight_digest=state.digests["trainable"])

    def restore(self) -> tuple[str, int]:
        """Load the newest checkpoint's position; drop records of later steps. Return stage and step."""
        self.evaluations = evaluations_of(RunReader(self.out).events())
        newest = checkpoint.find_newest(self.checkpoints)
        if newest is None:
            self.writer.clear()
            return self.recipe.stages[0], 0
        state = checkpoint.read_state(newest)
        self.writer.truncate_to(state.stage, state.step)
        index = self.recipe.stages.index(state.stage)
        if index:
            previous = self.recipe.stages[index - 1]
            end = checkpoint.CheckpointState(previous, self.recipe.stage(previous).steps).name
            checkpoint.load_table(self.checkpoints / end, "trainable", self.session.parameters)
        return state.stage, state.step

    def weights_version(self, stage: str, step: int) -> int:
        """Return the steps done so far, over all stages."""
        before = self.recipe.stages[: self.recipe.stages.index(stage)]
        return sum(self.recipe.stage(name).steps for name in before) + step
