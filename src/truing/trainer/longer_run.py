"""A run that is resumed with more steps than it began with, or that is finished."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from truing.config import Recipe, resolve, to_toml
from truing.learner.checkpoint import CheckpointState
from truing.learner.lr_schedule import learning_rate
from truing.record import RunReader, RunWriter
from truing.record.no_writer import NoWriter
from truing.trainer.events import EventLog


@dataclass(frozen=True)
class LongerStage:
    """A stage that gets more steps: ``before`` were planned, ``step`` are done."""

    stage: str
    step: int
    before: int
    steps: int


def open_stages(recipe: Recipe, newest: CheckpointState | None) -> Sequence[str]:
    """Return the stages that may get more steps: a later stage began from the end of the others."""
    if newest is None or newest.stage not in recipe.stages:
        return recipe.stages
    return recipe.stages[recipe.stages.index(newest.stage) :]


def longer_stages(recipe: Recipe, run: Path, newest: CheckpointState | None) -> list[LongerStage]:
    """Return the stages that have more steps in a recipe than in the record of its run."""
    recorded = resolve(RunReader(run).run_fact("recipe"))
    return [
        LongerStage(stage, newest.step if newest and newest.stage == stage else 0, before, steps)
        for stage in recipe.stages
        if (steps := recipe.stage(stage).steps) > (before := recorded.stage(stage).steps)
    ]


def longer_text(recipe: Recipe, longer: LongerStage) -> str:
    """Return what more steps change."""
    stage, done, before, steps = longer.stage, longer.step, longer.before, longer.steps
    what = f"{stage} has {steps} steps, {before} were planned, and continues after {done}"
    schedule, peak = recipe.optimizer.schedule, recipe.stage(stage).learning_rate
    if schedule == "constant" or not done:
        return f"{what}: the run equals one that was planned with {steps}"
    old, new = (
        [learning_rate(step, total, peak, recipe.optimizer) for step in (done - 1, done)]
        for total in (before, steps)
    )
    return (
        f'{what}. optimizer.schedule = "{schedule}" depends on the number of steps: the {done} that are done'
        f" had the rates of a run of {before} (the last {old[0]:.3g}), those from step {done + 1} on have the"
        f" rates of a run of {steps} (the first {new[1]:.3g}). So the run differs from one that was planned"
        f' with {steps}; with schedule = "constant" it would not'
    )


def record_longer(
    stages: Sequence[LongerStage], recipe: Recipe, writer: RunWriter, event_log: EventLog
) -> None:
    """Record stages that are made longer: events, then recipe.toml, and last run.json, which tells them.

    A run that is killed between them is made longer again when it is resumed.
    """
    for each in stages:
        event_log.log("longer", **asdict(each), text=longer_text(recipe, each))
    if stages and not isinstance(writer, NoWriter):
        reader = RunReader(writer.run_dir)
        started, facts = resolve(reader.recipe_table()), reader.run_json()
        for each in stages:
            table = started.stage(each.stage).model_copy(update={"steps": each.steps})
            started = started.model_copy(update={each.stage: table})
            facts["recipe"][each.stage]["steps"] = each.steps
        writer.rewrite(to_toml(started), facts)


def is_finished(recipe: Recipe, run: Path, newest: CheckpointState | None) -> bool:
    """Return whether a run has trained all steps of a recipe, and all that comes after them is recorded."""
    last = recipe.stages[-1]
    if newest is None or (newest.stage, newest.step) != (last, recipe.stage(last).steps):
        return False
    ended = False
    for event in RunReader(run).events():
        if event.kind == "checkpoint" and event.payload["name"] == newest.name:
            ended = False
        ended |= event.kind == "finished"
    return ended


def finished_text(recipe: Recipe) -> str:
    """Return that a run is finished, and how it goes on."""
    last = recipe.stages[-1]
    return (
        f"this run is finished: all {recipe.stage(last).steps} steps of {last} are done. With more steps it"
        f" goes on: {last}.steps=N with --resume, or max_steps in a script with truing.trl"
    )
