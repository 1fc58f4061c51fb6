"""Goes back to a kept checkpoint of a run: what came after it becomes a run directory of its own."""

from collections.abc import Sequence
from pathlib import Path

from truing.learner import checkpoint
from truing.learner.checkpoint import CheckpointState
from truing.learner.restore import checkpoint_after
from truing.record import RunReader, RunWriter, archive_undone
from truing.record.store import ABANDONED
from truing.record.undone_steps import steps_after
from truing.utils.atomic_files import disk_errors, move_into_place
from truing.utils.format import with_count


def go_back(run: Path, step: int, stage: str | None = None) -> str:
    """Make the checkpoint after ``step`` steps of a stage the newest, and return what became of later ones.

    Later steps, checkpoints and archives of rollbacks are moved to ``RUN/abandoned/STAGE-after-STEP``.
    Nothing is removed before it is there, so a run that is killed meanwhile has all of them.

    Args:
        run: a run directory that no process writes.
        step: steps of the stage.
        stage: of the checkpoint; by default the last stage that has one after ``step`` steps.
    """
    folder = run / "checkpoints"
    state = checkpoint.read_state(folder / checkpoint_after(run, step, stage))
    stages = RunReader(run).run_fact("recipe", "stages")
    later_stages = stages[stages.index(state.stage) + 1 :]
    with RunWriter(run, resume=True) as writer:
        later = _later_checkpoints(folder, state, later_stages)
        newest = checkpoint.find_newest(folder)
        undone = len(steps_after(RunReader(run).iter_steps(), state.stage, state.step))
        if not later and not undone:
            return f"the run is at step {state.step} of {state.stage}: nothing came after it"
        name = _unused_name(run / ABANDONED, f"{state.stage}-after-{state.step}")
        archive = archive_undone(run, state.stage, state.step, name, later, newest)
        _move_rollbacks(run / ABANDONED, archive / ABANDONED, state, later_stages)
        kept = str(archive.relative_to(run))
        writer.write_event("resumed", stage=state.stage, step=state.step, suppress={}, kept=kept)
        checkpoint.rewind_to(folder, state)
        for path in later:
            if path.exists():
                checkpoint.remove(path)
        writer.truncate_to(state.stage, state.step)
    return (
        f"back to step {state.step} of {state.stage}: {with_count(undone, 'later step')} and"
        f" {with_count(len(later), 'checkpoint')} are kept in {archive}"
    )


def _later_checkpoints(folder: Path, state: CheckpointState, later_stages: Sequence[str]) -> list[Path]:
    """Return the checkpoints after one, of its stage and of later stages."""
    steps = {stage: checkpoint.saved_steps(folder, stage) for stage in (state.stage, *later_stages)}
    return [
        checkpoint.checkpoint_path(folder, CheckpointState(stage, step).name)
        for stage, saved in steps.items()
        for step in saved
        if stage != state.stage or step > state.step
    ]


def _move_rollbacks(source: Path, target: Path, state: CheckpointState, later_stages: Sequence[str]) -> None:
    """Move the archives of rollbacks after a checkpoint: the next rollback has the name of the first."""
    for path in sorted(source.glob("*-[0-9]*")):
        stage, _, number = path.name.rpartition("-")
        undone = stage == state.stage and number.isdecimal() and int(number) > state.rollbacks
        if undone or (stage in later_stages and number.isdecimal()):
            with disk_errors(target):
                target.mkdir(exist_ok=True)
                move_into_place(path, target / path.name)


def _unused_name(folder: Path, name: str) -> str:
    """Return a name that no archive has: with a number, if it was used."""
    names = (name if count == 1 else f"{name}-again-{count}" for count in range(1, 10_000))
    return next(each for each in names if not (folder / each).exists())
