"""Trains one stage of a run: its steps, their record, and its rollbacks."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from truing.config import Recipe, recipe_after_rollbacks
from truing.distributed.sharding import computing_device
from truing.doctor.live_doctor import stop_if_proven
from truing.errors import RecordError, Unstable
from truing.learner.checkpoint import CheckpointState, read_state
from truing.learner.coefficients import LossCoefficients
from truing.learner.learner import open_learner
from truing.learner.step import train_step
from truing.measurements.measurement import MeasuredStep
from truing.measurements.reference_sync import reference_sync_fact
from truing.measurements.step_measurements import StepMeasurements
from truing.record import RunReader
from truing.trainer.collector import CollectedStep, Collector, logged_publication
from truing.trainer.evaluation_loss import EvaluationLoss, evaluation_loss
from truing.trainer.guard import guarded, instability
from truing.trainer.rollback import Rollback, UnstableStep
from truing.trainer.run_context import RunContext
from truing.trainer.step_record import token_table, with_metrics
from truing.types.facts import Facts
from truing.types.step_table import StepTable
from truing.utils.memory import reset_peak
from truing.utils.phase_clock import phase


class StageTrainer:
    """Trains a stage that begins, or that resumes from its checkpoint after ``step`` steps."""

    coefficients: LossCoefficients
    rollbacks: int  # so far
    history: list[Mapping[str, float]]  # what the guard reads of each step, if there is one
    pending_facts: Facts  # measured between two steps, recorded with the next

    def __init__(self, run: RunContext, stage: str, step: int) -> None:
        self.run, self.stage, self.session = run, stage, run.session
        checkpoint = run.checkpoints.saved(stage, step)
        if step and checkpoint is None:
            raise RecordError(
                f"{stage} goes on after step {step}, of which there is no checkpoint",
                expected="the checkpoint of the last step that counts",
                remedy="resume from a step that has one: --step N",
            )
        self.load_state(read_state(checkpoint) if checkpoint else CheckpointState(stage, 0))
        self.learner = open_learner(self.session.policy, self.recipe, stage, run.memory_budget, checkpoint)
        if self.recipe.guard and not checkpoint:
            self.save(0)
        self.collector = self.open_collector()

    @property
    def recipe(self) -> Recipe:
        """Return the recipe, with the guard's changes."""
        return self.session.recipe

    def load_state(self, state: CheckpointState) -> None:
        """Continue as a checkpoint and the record have it: recipe, coefficients, metrics, doctor."""
        run, self.rollbacks = self.run, state.rollbacks
        recipe = recipe_after_rollbacks(run.recipe, self.stage, state.rollbacks)
        self.session = replace(run.session, recipe=recipe)
        self.coefficients = (
            LossCoefficients(**state.coefficients) if state.coefficients else LossCoefficients.initial(recipe)
        )
        self.pending_facts = Facts(**state.pending_facts)
        run.ranks.gather("the record so far", None)  # the first rank has written it
        run.doctor.restore(self.stage, RunReader(run.out))
        self.history, run.event_log.loss_label = [], ""
        for row in RunReader(run.out).iter_steps():
            run.event_log.loss_label = row.loss_label
            if recipe.guard and row.stage == self.stage:
                self.history.append(guarded(row.metrics))

    def open_collector(self) -> Collector:
        """Return a collector of steps with the current session and recipe."""
        return Collector(
            self.session,
            self.learner,
            self.stage,
            lambda step: self.coefficients.setting(self.recipe, self.stage, step),
        )

    def close(self) -> None:
        """Collect no further step."""
        self.collector.close()

    def guarded_step(self, step: int) -> str:
        """Run a step; return why the guard must roll it back, or "" if it is stable."""
        guard = self.recipe.guard
        try:
            table = self.step(step)
        except Unstable as error:
            if not guard:
                raise
            return error.what
        steps = self.recipe.stage(self.stage).steps
        self.run.event_log.notify("step", {"record": table, "steps": steps})
        if not guard:
            return ""
        self.history.append(guarded(table.metrics))
        return instability(self.history, guard)

    def roll_back(self, step: int, reason: str) -> int:
        """Restore the last good checkpoint and apply the guard's changes; return its step."""
        run = self.run
        unstable = UnstableStep(self.stage, step, reason, self.rollbacks, self.history)
        rollback = Rollback(run.out, run.checkpoints, run.writer, run.event_log)
        state = run.ranks.on_first("a rollback", lambda: rollback.undo(unstable))
        self.load_state(state)
        self.learner.restore(run.checkpoints.path(self.stage, state.step))
        self.collector.close()
        self.collector = self.open_collector()
        run.clock.pop_seconds()  # drop the time of the undone steps
        return state.step

    def step(self, step: int) -> StepTable:
        """Run one step: sample, train, measure, record, diagnose; return its table."""
        run, stage, session, doctor = self.run, self.stage, self.session, self.run.doctor
        setting = self.coefficients.setting(self.recipe, stage, step)
        learner = replace(self.learner, setting=setting, optimizer_cfg=self.recipe.optimizer)
        learner.set_learning_rates(step)
        budget_before = learner.memory_budget.fits, learner.memory_budget.fits_recomputed
        reset_peak(computing_device(learner.model))

        with run.clock.running():
            collected = self.collect_samples(step)
            samples, step_index = collected.step_samples, run.weights_version(stage, step)
            measured = MeasuredStep(
                session.recipe,
                session.sampler,
                session.policy,
                learner,
                stage,
                step,
                step_index,
                samples,
                past=doctor.live_doctor.facts(stage),
                publication=collected.receipt,
                since_last=self.pending_facts,
            )
            measurements = StepMeasurements(measured, doctor.audit_schedule)
            with measurements.at_optimizer():
                steps = train_step(learner, samples.samples, (self.recipe.seed, stage, step), measurements)
            with phase("record"):
                table = token_table(stage, step, samples, steps)
            facts = measurements.facts(steps, table)
            with phase("record"):
                audits = doctor.live_doctor.history.audits(stage)
                table, label = with_metrics(
                    replace(table, facts=facts),
                    learner,
                    samples,
                    steps,
                    measurements.metrics,
                    audits,
                    run.clock,
                )
                run.writer.write_step(table)

        sampled = {
            sample.rollout_id
            for _, sample, part in table.slices()
            if not table.streams["supervised_mask"][part].any()
        }
        self.coefficients = self.coefficients.next_step(self.recipe, table.metrics, len(sampled))

        if (learner.memory_budget.fits, learner.memory_budget.fits_recomputed) != budget_before:
            run.event_log.log_memory(learner.memory_budget, stage, step)
        run.event_log.log_step(table, samples.rollouts, session.take_incidents(), steps, label)

        self.diagnose(table)
        return table

    def diagnose(self, table: StepTable) -> None:
        """Log what the doctor finds in a recorded step; a proof ends the run."""
        run = self.run
        with run.clock.running(), phase("doctor"):
            evidence, findings = run.doctor.live_doctor.diagnose(table, self.recipe)
        run.doctor.log(evidence, findings)
        if run.recipe.doctor.stop:
            # a rank may see what the first does not: all stop together
            run.ranks.together("the doctor's findings", lambda: stop_if_proven(findings))

    def collect_samples(self, step: int) -> CollectedStep:
        """Publish the weights and return the samples of a step; if that fails, save the steps before."""
        run, stage = self.run, self.stage
        try:
            with run.interrupt.interruptible(), logged_publication(run.event_log, stage, step):
                return self.collector.collect(step, run.weights_version(stage, step))
        except Unstable:  # the policy is broken: do not save it
            raise
        except BaseException:  # Ctrl-C included: the parameters are consistent here
            if step and not run.checkpoints.saved(stage, step):
                self.save(step)
            raise

    def sync_reference(self, step: int) -> None:
        """Sync the reference if that is due after ``step`` steps."""
        learner = self.learner
        with reference_sync_fact(learner, step, self.pending_facts):
            if learner.sync_reference(step):
                facts = learner.reference_sync_facts()
                self.run.event_log.log("reference", stage=self.stage, step=step - 1, **facts)

    def measure_loss(self, step: int) -> EvaluationLoss | None:
        """Log and return the loss on demonstrations of evaluation tasks, if SFT has any."""
        if self.stage != "sft" or not self.session.sampler.loss_tasks:
            return None
        measured = evaluation_loss(self.session, self.learner.model, self.learner.micro_batches)
        self.run.event_log.log("eval_loss", stage=self.stage, step=step, **asdict(measured))
        return measured

    def save(self, step: int) -> None:
        """Write a checkpoint after ``step`` steps."""
        state = CheckpointState(
            self.stage,
            step,
            coefficients=asdict(self.coefficients),
            rollbacks=self.rollbacks,
            pending_facts=self.pending_facts,
        )
        saved = self.run.checkpoints.save(self.learner, state)
        self.run.event_log.log("checkpoint", **saved.facts)
