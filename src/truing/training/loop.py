"""A run from start to end: stages, evaluations, checkpoints, and a record of it all."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from truing.algos import ALGORITHMS, Setting
from truing.clock import Clock, phase
from truing.config import Recipe, to_toml
from truing.envs.base import Env
from truing.errors import RecordError
from truing.memory import GB, watch_peak
from truing.models.score import causal_model
from truing.record import Event, RunReader, RunWriter, compact
from truing.training import checkpoint
from truing.training.control import Control
from truing.training.evaluate import Estimate, Evaluation, read_evaluation
from truing.training.incidents import ONCE, incidents
from truing.training.learner import Learner, open_learner
from truing.training.loss_label import LossLabel
from truing.training.notes import notes
from truing.training.proof import prove_credit, prove_tasks
from truing.training.recording import check_judged, run_facts, step_record
from truing.training.restore import check_same_recipe
from truing.training.room import Room, open_room
from truing.training.session import Session, open_session
from truing.training.source import Drawn, source
from truing.training.step import train_step
from truing.types import Rollout, StepRecord

TOKENIZER = "tokenizer"
"""Folder of the run with the tokenizer, so that its tokens can be read anywhere."""

Watch = Callable[[str, Mapping[str, Any]], None]
"""Told of each thing as it happens: a kind (`start`, `stage`, `step`, `eval`, `note`) and its facts."""


@dataclass(frozen=True)
class Result:
    """What a finished run leaves: its directory, and its evaluations in order."""

    run: Path
    evaluations: Mapping[str, Evaluation]

    def __str__(self) -> str:
        """The run, and what each evaluation came to."""
        return "\n".join([str(self.run), *(f"{name}: {found}" for name, found in self.estimates().items())])

    def estimates(self) -> dict[str, Estimate]:
        """Mean reward with its interval, by evaluation."""
        return {name: evaluation.estimate() for name, evaluation in self.evaluations.items()}

    def gains(self) -> dict[str, Estimate]:
        """What each stage added to the one before, by paired difference."""
        names = list(self.evaluations)
        return {
            name: self.evaluations[name].gain_over(self.evaluations[before])
            for before, name in itertools.pairwise(names)
        }


def run(recipe: Recipe, env: Env, out: Path, *, resume: bool = False, watch: Watch) -> Result:
    """Train what the recipe says and record it under ``out``."""
    if resume:
        check_same_recipe(recipe, RunReader(out).recipe())
    session = open_session(recipe, env)
    scene = session.scene(session.contract)
    if "grpo" in recipe.stages:
        prove_credit(scene, session.train_tasks, recipe.stage("grpo"))
    room = _room(session, RunReader(out).events() if resume else [])
    found = list(prove_tasks(scene, session.train_tasks, session.eval_tasks))
    if resume:
        check_judged(session, RunReader(out).run())
    with RunWriter(out, resume=resume) as writer:
        if not resume:
            _keep_tokenizer(session, out / TOKENIZER)
            writer.write_recipe(to_toml(recipe))
            writer.write_run(run_facts(session) | {"tokenizer": TOKENIZER})
        trainer = _Run(session, writer, out, watch, room)
        for note in (*env.notes, *found, *notes(session)):
            trainer.tell("note", text=note)
        try:
            result = trainer.train(resume)
        except BaseException:
            watch("stopped", {"run": str(out)})
            raise
        compact(out)
    return result


def _room(session: Session, events: Sequence[Event]) -> Room:
    """What the run computes at once; one that is resumed goes on as it was."""
    told = [event.payload for event in events if event.kind == "memory"]
    if told:
        return Room.of(told[-1])
    recipe = session.recipe
    return open_room(
        session.policy,
        session.parameters,
        recipe.optimizer.budget,
        recipe.optimizer.micro_batch_tokens,
        reference=any(ALGORITHMS[name].needs_reference(Setting.of(recipe, name)) for name in recipe.stages),
        critic=any(ALGORITHMS[name].critic(recipe.stage(name)) == "separate" for name in recipe.stages),
    )


def _keep_tokenizer(session: Session, folder: Path) -> None:
    """Save what the ids of the record mean."""
    try:
        session.loaded.tokenizer.save_pretrained(folder)
    except Exception as error:
        raise RecordError(
            f"cannot write {folder}", got=error, remedy="free space, then start again in another --out"
        ) from error


class _Run:
    """The state of a run while it goes on: what it writes to, and what was evaluated so far."""

    def __init__(self, session: Session, writer: RunWriter, out: Path, watch: Watch, room: Room) -> None:
        self.session, self.writer, self.watch = session, writer, watch
        self.recipe, self.out = session.recipe, out
        self.checkpoints = out / "checkpoints"
        self.evaluations: dict[str, Evaluation] = {}
        self.label = ""
        on_cuda = causal_model(session.policy).device.type == "cuda"
        self.clock = Clock(torch.cuda.synchronize) if on_cuda else Clock()
        self.told: set[str] = set()
        self.room = room
        self.control = Control.start(session.recipe)

    def tell(self, kind: str, **facts: Any) -> None:
        """Record an event and pass it on."""
        self.writer.event(kind, **facts)
        self.watch(kind, facts)

    def train(self, resume: bool) -> Result:
        """All stages, from the start or from the newest checkpoint."""
        stages = self.recipe.stages
        first_stage, first_step = self.restore() if resume else (stages[0], 0)
        self.tell("memory", **asdict(self.room))
        if self.recipe.eval.base and "base" not in self.evaluations:
            self.evaluate("base", 0)
        for stage in stages[stages.index(first_stage) :]:
            self.train_stage(stage, first_step if stage == first_stage else 0)
            if f"after_{stage}" not in self.evaluations:
                self.evaluate(f"after_{stage}", self.version(stage, self.recipe.stage(stage).steps))
        self.tell(
            "finished",
            estimates={name: asdict(e) for name, e in Result(self.out, self.evaluations).estimates().items()},
        )
        return Result(self.out, self.evaluations)

    def train_stage(self, stage: str, first_step: int) -> None:
        """One stage; its reference is the policy as it is now, its optimiser starts fresh or is restored."""
        cfg = self.recipe.stage(stage)
        resume = self.checkpoints / checkpoint.State(stage, first_step).name if first_step else None
        learner = open_learner(self.session, stage, self.room, resume)
        self.control = Control.start(self.recipe)
        if resume is not None:
            self.control = Control(**checkpoint.read_state(resume).control)
        self.tell("stage", stage=stage, steps=cfg.steps, first_step=first_step)
        self.clock.take()  # what was written for the stage before is no part of this one
        for step in range(first_step, cfg.steps):
            setting = self.control.setting(self.recipe, stage, step)
            record = self.step(replace(learner, setting=setting), stage, step)
            self.watch("step", {"record": record, "steps": cfg.steps})
            done = step + 1
            if learner.sync_reference(done):
                self.tell("reference", stage=stage, step=step, **self.compared(learner))
            # before the checkpoint: a run that is cut between the two repeats the step, and the evaluation
            if done < cfg.steps and self.recipe.eval.every and done % self.recipe.eval.every == 0:
                self.evaluate(f"{stage}@{done}", self.version(stage, done))
            if done == cfg.steps or (
                self.recipe.checkpoint_every and done % self.recipe.checkpoint_every == 0
            ):
                self.save(learner, stage, done)

    def step(self, learner: Learner, stage: str, step: int) -> StepRecord:
        """One update: draw, train, record."""
        learner.set_rates(step)
        before = learner.room.fits, learner.room.fits_recomputed
        watch_peak(causal_model(learner.model).device)
        with self.clock.running():
            drawn = self.draw(learner, stage, step)
            traces = train_step(learner, drawn.samples, (self.recipe.seed, stage, step))
            with phase("record"):
                record, label, rows = step_record(stage, step, learner, drawn, traces, self.clock)
                self.writer.write_step(record, rows)
        if (learner.room.fits, learner.room.fits_recomputed) != before:
            text = f"memory ran out; from now on {learner.room.fits} tokens at once, and this step began anew"
            self.tell("memory", **asdict(learner.room))
            self.tell("incident", what="memory", stage=stage, step=step, text=text)
        played = {sample.rollout_id for sample in record.samples if not sample.supervised_mask.any()}
        self.control = self.control.after(self.recipe, record.metrics, len(played))
        self.report(drawn.rollouts, stage, step)
        for trace in traces:
            if trace.held_back:
                self.tell("incident", what="held_back", stage=stage, step=step, text=trace.held_back)
        self.watch_budget(record)
        self.explain(label, stage, step)
        return record

    def draw(self, learner: Learner, stage: str, step: int) -> Drawn:
        """What a step trains on. Where that fails, or somebody stops it, the steps before are kept."""
        try:
            if learner.algorithm.source == "rollouts":
                self.session.sync_sampler(self.version(stage, step))
            return source(self.session, learner.algorithm, learner.setting, stage, step)
        except BaseException:  # whatever it is: the parameters are whole here
            kept = self.checkpoints / checkpoint.State(stage, step).name
            if step and not kept.exists():
                self.save(learner, stage, step)
            raise

    def report(self, rollouts: Mapping[str, Rollout], stage: str, step: int) -> None:
        """Tell of failed attempts, and the first time of what stays as it is."""
        for kind, text in incidents(rollouts):
            if kind not in self.told:
                self.tell("incident", what=kind, stage=stage, step=step, text=text)
            if kind in ONCE:
                self.told.add(kind)

    def watch_budget(self, record: StepRecord) -> None:
        """Tell, once, where a step held more than its budget."""
        budget, most = self.recipe.optimizer.budget, record.metrics.get("memory/peak", 0.0)
        if budget is not None and most * GB > budget and "budget" not in self.told:
            self.told.add("budget")
            text = (
                f"a step held {most:.2f} GB, more than optimizer.memory = {budget / GB:g} GB: that bounds"
                " forward and backward, and drawing and what libraries keep come on top; lower it for less"
            )
            self.tell("incident", what="budget", stage=record.stage, step=record.step, text=text)

    def explain(self, label: LossLabel, stage: str, step: int) -> None:
        """Say what the loss means where that changed since the last step."""
        if label.label != self.label:
            self.label = label.label
            self.tell("loss", stage=stage, step=step, label=label.label, text=label.text)

    def evaluate(self, name: str, version: int) -> None:
        """Evaluate the policy as it is now, and record each answer."""
        self.session.sync_sampler(version)
        self.watch("evaluating", {"name": name, "tasks": self.recipe.eval.tasks})
        evaluation = self.session.evaluate(name)
        self.evaluations[name] = evaluation
        self.tell("eval", **asdict(evaluation), estimate=asdict(evaluation.estimate()))

    def save(self, learner: Learner, stage: str, step: int) -> None:
        """Write a checkpoint, and drop the one before unless a stage ended there."""
        ends = {checkpoint.State(name, self.recipe.stage(name).steps).name for name in self.recipe.stages}
        before = checkpoint.find_newest(self.checkpoints)
        if learner.reference is not None:
            learner.reference.prove_still()
        kept = (learner.tables(), learner.optimizer, asdict(self.control))
        state = checkpoint.save(self.checkpoints, stage, step, *kept)
        if before is not None and before.name not in ends | {state.name}:
            checkpoint.drop(before)
        self.tell("checkpoint", name=state.name, weight_digest=state.digests["trainable"])

    def restore(self) -> tuple[str, int]:
        """The stage and step to go on from; drops records of steps that the checkpoint does not cover."""
        for event in RunReader(self.out).events():
            if event.kind == "eval":
                self.evaluations[event.payload["name"]] = read_evaluation(event.payload)
        newest = checkpoint.find_newest(self.checkpoints)
        if newest is None:
            self.writer.restart()
            return self.recipe.stages[0], 0
        state = checkpoint.read_state(newest)
        self.writer.truncate_after(state.stage, state.step - 1)
        index = self.recipe.stages.index(state.stage)
        if index:
            before = self.recipe.stages[index - 1]
            end = checkpoint.State(before, self.recipe.stage(before).steps).name
            checkpoint.load_table(self.checkpoints / end, "trainable", self.session.parameters)
        self.tell("resumed", stage=state.stage, step=state.step)
        return state.stage, state.step

    def compared(self, learner: Learner) -> dict[str, Any]:
        """What a sync left: the reference's digest, and how many of its weights are not the policy's."""
        assert learner.reference is not None
        held = learner.reference.moving()
        differing = sum(not torch.equal(held[name], weight) for name, weight in learner.parameters.items())
        keep = learner.reference_cfg.keep
        return {"digest": learner.reference.digest, "differing": differing, "keep": keep}

    def version(self, stage: str, step: int) -> int:
        """Updates done so far, over all stages."""
        before = self.recipe.stages[: self.recipe.stages.index(stage)]
        return sum(self.recipe.stage(name).steps for name in before) + step
