"""The training loop: stages, steps, evaluations, checkpoints, guard rollbacks and resume of a run."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from truing.analysis.current_events import mid_stage_name
from truing.analysis.estimate import pass_at_json
from truing.analysis.evaluation import Evaluation
from truing.analysis.train_result import TrainResult, evaluations_of
from truing.config import Recipe, recipe_after_rollbacks
from truing.distributed.sharding import computing_device
from truing.doctor.live_doctor import stop_if_proven
from truing.errors import Unstable
from truing.instrumentation.evaluation_check import prove_evaluated
from truing.instrumentation.rank_facts import rank_facts
from truing.instrumentation.reference_sync_check import reference_sync_fact
from truing.learner.checkpoint import CheckpointState, read_state
from truing.learner.coefficients import LossCoefficients
from truing.learner.evaluation_loss import evaluation_loss
from truing.learner.learner import Learner, open_learner
from truing.learner.memory_budget import MemoryBudget
from truing.learner.session import Session
from truing.learner.step import train_step
from truing.record import RunReader, RunWriter
from truing.trainer.checkpoint_manager import CheckpointManager
from truing.trainer.collector import CollectedStep, Collector, logged_publication
from truing.trainer.events import EventLog
from truing.trainer.guard import guarded, instability
from truing.trainer.interrupts import DeferredInterrupt
from truing.trainer.rollback import Rollback, UnstableStep
from truing.trainer.step_record import step_record
from truing.trainer.update_doctor import UpdateDoctor
from truing.types.batch import StepRecord
from truing.utils.memory import reset_peak
from truing.utils.phase_clock import PhaseClock, phase


def clock_of(device: torch.device) -> PhaseClock:
    """Return a clock that waits for the device at the end of each phase."""
    return PhaseClock(torch.cuda.synchronize) if device.type == "cuda" else PhaseClock()


class Loop:
    """Trains the stages of a recipe and records every step; keeps the state of the run between steps."""

    def __init__(
        self, session: Session, writer: RunWriter, out: Path, memory_budget: MemoryBudget, event_log: EventLog
    ) -> None:
        self.session, self.writer, self.out, self.memory_budget = session, writer, out, memory_budget
        self.declared_recipe = session.recipe  # a guard may change ``session.recipe`` within a stage
        self.event_log = event_log
        self.checkpoints = CheckpointManager(out / "checkpoints", session.recipe)
        self.rollback = Rollback(out, self.checkpoints, writer, event_log)
        self.doctor = UpdateDoctor(session, event_log)
        self.evaluations: dict[str, Evaluation] = {}
        self.clock = clock_of(computing_device(session.policy))
        self.ranks = session.ranks
        self.interrupt = DeferredInterrupt(interruptible=self.ranks.size == 1)
        self.stop_requested = False  # by the event callback
        # of the current stage
        self.collector: Collector | None = None
        self.coefficients = LossCoefficients.initial(session.recipe)
        self.rollbacks = 0
        self.history: list[Mapping[str, float]] = []  # what the guard reads of each step, if there is one
        self.pending_facts: dict[str, Any] = {}  # facts between two updates, recorded with the next

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
        evaluated = self.declared_recipe.eval.tasks > 0
        if evaluated and self.declared_recipe.eval.base and "base" not in self.evaluations:
            self.evaluate("base", first_stage, 0)

        for stage in stages[stages.index(first_stage) :]:
            steps_done = self.train_stage(stage, first_step if stage == first_stage else 0)
            if evaluated and f"after_{stage}" not in self.evaluations:
                self.evaluate(f"after_{stage}", stage, steps_done)
            if self.stop_requested:
                break

        result = TrainResult(self.out, self.evaluations)
        estimates = {name: asdict(estimate) for name, estimate in result.estimates().items()}
        self.event_log.log("finished", estimates=estimates)
        return result

    def train_stage(self, stage: str, step: int) -> int:
        """Train one stage, of which ``step`` steps are done; return the steps done then.

        They are fewer than declared if the event callback asked for a stop.
        """
        learner = self.open_stage(stage, step)
        steps = self.recipe.stage(stage).steps
        self.event_log.log("stage", stage=stage, steps=steps, first_step=step)
        self.event_log.notify("learner", {"learner": learner})
        if not step and self.recipe.eval.base:
            self.measure_loss(learner, stage, 0)
        self.clock.pop_seconds()  # drop time spent after the previous stage's last step
        with self.interrupt:
            while step < steps and not self.stop_requested:
                step = self.next_step(learner, stage, step)
        self.close_collector()
        return step

    def next_step(self, learner: Learner, stage: str, step: int) -> int:
        """Train, evaluate and save one step, or roll back; return the steps done then."""
        if reason := self.guarded_step(learner, stage, step):
            return self.roll_back(learner, stage, step, reason)
        step += 1
        with reference_sync_fact(learner, step, self.pending_facts):
            if learner.sync_reference(step):
                self.event_log.log("reference", stage=stage, step=step - 1, **learner.reference_sync_facts())

        self.read_stop()
        # evaluate before saving: a run killed between the two repeats the step and the evaluation
        cfg, is_last = self.recipe.eval, step == self.recipe.stage(stage).steps
        if cfg.tasks and cfg.every and not (step % cfg.every or is_last or self.stop_requested):
            self.evaluate(mid_stage_name(stage, step), stage, step)
        every = self.recipe.sft.eval_every if self.recipe.sft else 0
        if is_last or self.stop_requested or (every and step % every == 0):
            self.measure_loss(learner, stage, step)
        self.read_stop()  # the callback has seen the evaluation
        self.interrupt.requested = any(self.ranks.gather("Ctrl-C", self.interrupt.requested))
        if self.checkpoints.due(stage, step) or self.interrupt.requested or self.stop_requested:
            self.save(learner, stage, step)
        self.interrupt.raise_if_requested()
        return step

    def read_stop(self) -> None:
        """Read whether the event callback has asked for a stop, on the first rank."""
        self.stop_requested = any(self.ranks.gather("a stop", self.event_log.stop_requested))

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
        saved = self.checkpoints.saved(stage, step)
        self.load_state(read_state(saved) if saved else CheckpointState(stage, 0))
        learner = open_learner(self.session, stage, self.memory_budget, saved)
        if self.recipe.guard and not saved:
            self.save(learner, stage, 0)
        self.open_collector(learner, stage)
        return learner

    def load_state(self, state: CheckpointState) -> None:
        """Continue a stage as a checkpoint and the record have it: recipe, coefficients, metrics, doctor."""
        stage, self.rollbacks = state.stage, state.rollbacks
        recipe = recipe_after_rollbacks(self.declared_recipe, stage, state.rollbacks)
        self.session = replace(self.session, recipe=recipe)
        self.coefficients = (
            LossCoefficients(**state.control) if state.control else LossCoefficients.initial(recipe)
        )
        self.pending_facts = dict(state.between)
        self.ranks.gather("the record so far", None)  # the first rank has written it
        self.doctor.restore(stage, RunReader(self.out))
        self.history, self.event_log.loss_label = [], ""
        for row in RunReader(self.out).iter_steps():
            self.event_log.loss_label = row.loss_label
            if recipe.guard and row.stage == stage:
                self.history.append(guarded(row.metrics))

    def guarded_step(self, learner: Learner, stage: str, step: int) -> str:
        """Run a step; return why the guard must roll it back, or "" if it is stable."""
        guard, setting = self.recipe.guard, self.coefficients.setting(self.recipe, stage, step)
        learner = replace(learner, setting=setting, optimizer_cfg=self.recipe.optimizer)
        try:
            record = self.step(learner, stage, step)
        except Unstable as error:
            if not guard:
                raise
            return error.what
        self.event_log.notify("step", {"record": record, "steps": self.recipe.stage(stage).steps})
        if not guard:
            return ""
        self.history.append(guarded(record.metrics))
        return instability(self.history, guard)

    def roll_back(self, learner: Learner, stage: str, step: int, reason: str) -> int:
        """Restore the stage's last good checkpoint and apply the guard's changes; return its step."""
        unstable = UnstableStep(stage, step, reason, self.rollbacks, self.history)
        state = self.ranks.on_first("a rollback", lambda: self.rollback.undo(unstable))
        self.load_state(state)
        self.evaluations = evaluations_of(RunReader(self.out).events())
        learner.restore(self.checkpoints.path(stage, state.step))
        self.open_collector(learner, stage)
        self.clock.pop_seconds()  # drop the time of the undone steps
        return state.step

    def step(self, learner: Learner, stage: str, step: int) -> StepRecord:
        """Run one step of the stage: sample, train, measure, record, diagnose; return its record."""
        learner.set_learning_rates(step)
        budget_before = learner.memory_budget.fits, learner.memory_budget.fits_recomputed
        reset_peak(computing_device(learner.model))

        with self.clock.running():
            collected = self.collect_samples(learner, stage, step)
            samples, update_index = collected.step_samples, self.weights_version(stage, step)
            with self.doctor.measured(learner, update_index) as facts:
                facts |= self.pending_facts | collected.publication_fact(update_index)
                audit = self.doctor.audit_schedule.next_audit(
                    self.session, stage, update_index, samples, facts
                )
                traces = train_step(learner, samples.samples, (self.recipe.seed, stage, step), audit)
                facts |= self.doctor.sample_facts(self.session, learner, (stage, step), samples, traces)
            with phase("doctor"):
                facts |= rank_facts(self.session, learner, (stage, step, update_index), traces, facts)

            with phase("record"):
                audits = self.doctor.live_doctor.history.audits(stage)
                record, label, rows = step_record(
                    stage, step, learner, samples, traces, self.clock, facts, audits
                )
                self.writer.write_step(record, rows)

        sampled_rollouts = {
            sample.rollout_id for sample in record.samples if not sample.supervised_mask.any()
        }
        self.coefficients = self.coefficients.next_step(self.recipe, record.metrics, len(sampled_rollouts))

        if (learner.memory_budget.fits, learner.memory_budget.fits_recomputed) != budget_before:
            self.event_log.log_memory(learner.memory_budget, stage, step)
        engine_incidents = self.session.take_incidents()
        self.event_log.log_update(record, samples.rollouts, engine_incidents, traces, label)

        with self.clock.running(), phase("doctor"):
            evidence, findings = self.doctor.diagnose(record, rows, self.recipe)
        self.doctor.log(evidence, findings)
        if self.declared_recipe.doctor.stop:
            # a rank may see what the first does not: all stop together
            self.ranks.together("the doctor's findings", lambda: stop_if_proven(findings))
        return record

    def collect_samples(self, learner: Learner, stage: str, step: int) -> CollectedStep:
        """Publish the weights and return the samples of a step; if that fails, save the steps before."""
        assert self.collector is not None
        try:
            with self.interrupt.interruptible(), logged_publication(self.event_log, stage, step):
                return self.collector.collect(step, self.weights_version(stage, step))
        except Unstable:  # the policy is broken: do not save it
            raise
        except BaseException:  # Ctrl-C included: the parameters are consistent here
            if step and not self.checkpoints.saved(stage, step):
                self.save(learner, stage, step)
            raise

    def evaluate(self, name: str, stage: str, step: int) -> None:
        """Evaluate the policy after ``step`` steps of a stage, and log the evaluation with every answer."""
        if self.collector is not None:
            self.collector.wait()
        with logged_publication(self.event_log, stage, step):
            self.session.publish(self.weights_version(stage, step))
        self.event_log.notify("evaluating", {"name": name, "tasks": self.recipe.eval.tasks})
        evaluation = self.session.evaluate(
            name,
            partial(prove_evaluated, self.session),
            lambda ended, answers: self.event_log.notify("evaluated", {"ended": ended, "answers": answers}),
        )
        self.session.engine.release_memory()
        self.evaluations[name] = evaluation
        estimate, pass_at = asdict(evaluation.estimate()), pass_at_json(evaluation.pass_at())
        self.event_log.log("eval", **asdict(evaluation), estimate=estimate, pass_at=pass_at)

    def measure_loss(self, learner: Learner, stage: str, step: int) -> None:
        """Log the loss on demonstrations of evaluation tasks, if SFT has any."""
        if stage == "sft" and self.session.loss_tasks:
            measured = evaluation_loss(self.session, learner.model, learner.micro_batches)
            self.event_log.log("eval_loss", stage=stage, step=step, **asdict(measured))

    def save(self, learner: Learner, stage: str, step: int) -> None:
        """Write a checkpoint after ``step`` steps of a stage."""
        state = CheckpointState(
            stage,
            step,
            control=asdict(self.coefficients),
            rollbacks=self.rollbacks,
            between=self.pending_facts,
        )
        saved = self.checkpoints.save(learner, state)
        self.event_log.log("checkpoint", **saved.facts)

    def restore(self) -> tuple[str, int]:
        """Load the newest checkpoint's position; drop records of later steps. Return stage and step."""
        events = RunReader(self.out).events()
        self.evaluations = evaluations_of(events)
        newest = self.ranks.on_first("the newest checkpoint", self.checkpoints.newest)
        self.ranks.on_first("leftovers", lambda: self.checkpoints.remove_leftovers(newest))
        if newest is None:
            self.writer.clear()
            return self.recipe.stages[0], 0
        self.writer.truncate_to(newest.stage, newest.step)
        if newest.facts not in [event.payload for event in events if event.kind == "checkpoint"]:
            self.event_log.log("checkpoint", **newest.facts)  # a kill came between it and its event
        self.ranks.together(
            "reading the weights of the stage before",
            lambda: self.checkpoints.load_previous_stage(newest.stage, self.session.parameters),
        )
        return newest.stage, newest.step

    def weights_version(self, stage: str, step: int) -> int:
        """Return the steps done so far, over all stages."""
        before = self.recipe.stages[: self.recipe.stages.index(stage)]
        return sum(self.recipe.stage(name).steps for name in before) + step
