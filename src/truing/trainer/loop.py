"""The training loop: stages, evaluations, checkpoints, guard rollbacks and resume of a run."""

from dataclasses import asdict

from truing.analysis.current_events import mid_stage_name
from truing.analysis.train_result import TrainResult, evaluations_of
from truing.record import RunReader
from truing.trainer.best_checkpoint import PolicyScores, losses_of
from truing.trainer.evaluate import logged_evaluation
from truing.trainer.run_context import RunContext
from truing.trainer.stage_trainer import StageTrainer


class Loop:
    """Trains the stages of a recipe, and evaluates between steps and stages."""

    def __init__(self, run: RunContext) -> None:
        self.run = run
        self.scores = PolicyScores(run.recipe)
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
            run.doctor.log_evaluation(stage, RunReader(run.out).events())
            self.report_best(stage, steps_done)
            if self.stop_requested:
                break

        run.doctor.log_not_audited()
        result = TrainResult(run.out, self.scores.evaluations)
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
        self.read_evaluations()  # one after the stage is within it, if the stage trains on
        run.event_log.notify("learner", {"learner": trainer.learner})
        if not step and run.recipe.eval.base:
            self.measure_loss(trainer, 0)
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
            self.read_evaluations()
            return step
        step += 1
        trainer.sync_reference(step)

        self.read_stop()
        # evaluate before saving: a run killed between the two repeats the step and the evaluation
        cfg, is_last = run.recipe.eval, step == run.recipe.stage(stage).steps
        evaluated = bool(cfg.tasks and cfg.every) and not (step % cfg.every or is_last or self.stop_requested)
        if evaluated:
            trainer.collector.wait()
            self.evaluate(mid_stage_name(stage, step), stage, step)
        every = run.recipe.sft.eval_every if run.recipe.sft else 0
        if is_last or self.stop_requested or (every and step % every == 0):
            evaluated |= self.measure_loss(trainer, step)
        self.read_stop()  # the callback has seen the evaluation
        is_due = run.checkpoints.due(stage, step, evaluated=evaluated)
        # one rank's answer counts for all: clocks differ
        answers = run.ranks.gather("Ctrl-C, or a checkpoint", (interrupt.requested, is_due))
        interrupt.requested, is_due = (any(each) for each in zip(*answers, strict=True))
        if is_due or interrupt.requested or self.stop_requested:
            trainer.save(step)
        interrupt.raise_if_requested()
        return step

    def read_stop(self) -> None:
        """Read whether the event callback has asked for a stop, on the first rank."""
        self.stop_requested = any(self.run.ranks.gather("a stop", self.run.event_log.stop_requested))

    def evaluate(self, name: str, stage: str, step: int) -> None:
        """Evaluate the policy after ``step`` steps of a stage."""
        self.scores.evaluations[name] = logged_evaluation(self.run, name, stage, step)
        self.score(stage)

    def measure_loss(self, trainer: StageTrainer, step: int) -> bool:
        """Measure the loss on demonstrations, if SFT has any; return whether it was."""
        measured = trainer.measure_loss(step)
        if measured is not None:
            self.scores.losses[step] = asdict(measured)
            self.score(trainer.stage)
        return measured is not None

    def score(self, stage: str) -> None:
        """Let the checkpoints know the scores of a stage's policies: the best one is kept."""
        self.run.checkpoints.scores[stage] = self.scores.by_step(stage)

    def report_best(self, stage: str, last: int) -> None:
        """Log the best checkpoint of a stage, if there were several to choose from."""
        best, scores = self.run.checkpoints.best(stage), self.scores.by_step(stage)
        if best is not None and len(scores) > 1 and last in scores:
            self.run.event_log.log("best", **self.scores.report(stage, best, last))

    def read_evaluations(self) -> None:
        """Read what the record has of evaluations and losses, without those that were undone."""
        run = self.run
        run.ranks.gather("the events so far", None)  # the first rank has written them
        events = RunReader(run.out).events()
        self.scores.evaluations, self.scores.losses = evaluations_of(events), losses_of(events)
        for stage in run.stages:
            self.score(stage)

    def evaluate_once(self, name: str, stage: str, step: int) -> None:
        """Evaluate the policy, if the recipe asks for it and the run has not done so before it resumed."""
        if self.run.recipe.eval.tasks and name not in self.scores.evaluations:
            self.evaluate(name, stage, step)

    def restore(self) -> tuple[str, int]:
        """Return stage and step of the newest checkpoint; drop records of later steps.

        The policy gets the weights that its stage began with, of which the reference is made; those of the
        checkpoint come with the learner (``open_learner``), all else with ``StageTrainer``.
        """
        run, checkpoints = self.run, self.run.checkpoints
        self.read_evaluations()
        newest = run.ranks.on_first("the newest checkpoint", checkpoints.newest)
        run.ranks.on_first("leftovers", lambda: checkpoints.remove_leftovers(newest))
        if newest is None:
            run.writer.clear()
            return run.stages[0], 0
        run.writer.truncate_to(newest.stage, newest.step)
        events = RunReader(run.out).events()
        if newest.facts not in [event.payload for event in events if event.kind == "checkpoint"]:
            run.event_log.log("checkpoint", **newest.facts)  # a kill came between it and its event
        run.ranks.together(
            "reading the weights of the stage before",
            lambda: checkpoints.load_previous_stage(newest.stage, run.session.policy.parameters),
        )
        return newest.stage, newest.step
