"""The training loop: stages, evaluations, checkpoints, guard rollbacks and resume of a run."""

from dataclasses import asdict

from truing.analysis.current_events import mid_stage_name
from truing.analysis.evaluation import Evaluation
from truing.analysis.train_result import TrainResult, evaluations_of
from truing.record import RunReader
from truing.trainer.evaluate import evaluate
from truing.trainer.run_context import RunContext
from truing.trainer.stage_trainer import StageTrainer


class Loop:
    """Trains the stages of a recipe, and evaluates between steps and stages."""

    def __init__(self, run: RunContext) -> None:
        self.run = run
        self.evaluations: dict[str, Evaluation] = {}
        self.stop_requested = False  # by the event callback

    def train(self, resume: bool) -> TrainResult:
        """Train all stages, from the start or from the newest checkpoint; return the evaluations."""
        run, event_log = self.run, self.run.event_log
        first_stage, first_step = self.restore() if resume else (run.stages[0], 0)
        if resume:
            event_log.log("resumed", stage=first_stage, step=first_step, suppress=run.recipe.doctor.suppress)
        event_log.log("memory", **asdict(run.memory_budget))
        if run.recipe.eval.base:
            self.evaluate_once("base", first_stage, 0)

        for stage in run.stages[run.stages.index(first_stage) :]:
            steps_done = self.train_stage(stage, first_step if stage == first_stage else 0)
            self.evaluate_once(f"after_{stage}", stage, steps_done)
            if self.stop_requested:
                break

        result = TrainResult(run.out, self.evaluations)
        estimates = {name: asdict(estimate) for name, estimate in result.estimates().items()}
        event_log.log("finished", estimates=estimates)
        return result

    def train_stage(self, stage: str, step: int) -> int:
        """Train one stage, of which ``step`` steps are done; return the steps done then.

        They are fewer than declared if the event callback asked for a stop.
        """
        run = self.run
        trainer, steps = StageTrainer(run, stage, step), run.recipe.stage(stage).steps
        run.event_log.log("stage", stage=stage, steps=steps, first_step=step)
        run.event_log.notify("learner", {"learner": trainer.learner})
        if not step and run.recipe.eval.base:
            trainer.measure_loss(0)
        run.clock.pop_seconds()  # drop time spent after the previous stage's last step
        with run.interrupt:
            while step < steps and not self.stop_requested:
                step = self.next_step(trainer, step)
        trainer.close()
        return step

    def next_step(self, trainer: StageTrainer, step: int) -> int:
        """Train, evaluate and save one step, or roll back; return the steps done then."""
        run, stage, interrupt = self.run, trainer.stage, self.run.interrupt
        if reason := trainer.guarded_step(step):
            step = trainer.roll_back(step, reason)
            self.evaluations = evaluations_of(RunReader(run.out).events())
            return step
        step += 1
        trainer.sync_reference(step)

        self.read_stop()
        # evaluate before saving: a run killed between the two repeats the step and the evaluation
        cfg, is_last = run.recipe.eval, step == run.recipe.stage(stage).steps
        if cfg.tasks and cfg.every and not (step % cfg.every or is_last or self.stop_requested):
            trainer.collector.wait()
            self.evaluate(mid_stage_name(stage, step), stage, step)
        every = run.recipe.sft.eval_every if run.recipe.sft else 0
        if is_last or self.stop_requested or (every and step % every == 0):
            trainer.measure_loss(step)
        self.read_stop()  # the callback has seen the evaluation
        interrupt.requested = any(run.ranks.gather("Ctrl-C", interrupt.requested))
        if run.checkpoints.due(stage, step) or interrupt.requested or self.stop_requested:
            trainer.save(step)
        interrupt.raise_if_requested()
        return step

    def read_stop(self) -> None:
        """Read whether the event callback has asked for a stop, on the first rank."""
        self.stop_requested = any(self.run.ranks.gather("a stop", self.run.event_log.stop_requested))

    def evaluate(self, name: str, stage: str, step: int) -> None:
        """Evaluate the policy after ``step`` steps of a stage."""
        self.evaluations[name] = evaluate(self.run, name, stage, step)

    def evaluate_once(self, name: str, stage: str, step: int) -> None:
        """Evaluate the policy, if the recipe asks for it and the run has not done so before it resumed."""
        if self.run.recipe.eval.tasks and name not in self.evaluations:
            self.evaluate(name, stage, step)

    def restore(self) -> tuple[str, int]:
        """Load the newest checkpoint's position; drop records of later steps. Return stage and step."""
        run, checkpoints = self.run, self.run.checkpoints
        events = RunReader(run.out).events()
        self.evaluations = evaluations_of(events)
        newest = run.ranks.on_first("the newest checkpoint", checkpoints.newest)
        run.ranks.on_first("leftovers", lambda: checkpoints.remove_leftovers(newest))
        if newest is None:
            run.writer.clear()
            return run.stages[0], 0
        run.writer.truncate_to(newest.stage, newest.step)
        if newest.facts not in [event.payload for event in events if event.kind == "checkpoint"]:
            run.event_log.log("checkpoint", **newest.facts)  # a kill came between it and its event
        run.ranks.together(
            "reading the weights of the stage before",
            lambda: checkpoints.load_previous_stage(newest.stage, run.session.parameters),
        )
        return newest.stage, newest.step
