"""The run directory of a TRL script: ``truing``, ``truing-2``, … in its ``output_dir``; its checkpoints."""

from pathlib import Path

from truing.errors import RecordError
from truing.learner.checkpoint import CheckpointState, checkpoint_path, read_state
from truing.record import RunReader


def run_directory(output: Path, resume: str | bool | None) -> Path:
    """Return a new run directory in ``output``, or with ``resume`` the newest one (True) or that path."""
    if isinstance(resume, str):
        if checkpoint_named(resume) is not None:
            return Path(resume).parent.parent
        if not (Path(resume) / "recipe.toml").is_file():
            raise RecordError(
                "resume_from_checkpoint is no run directory",
                got=resume,
                expected="True, for the newest run in output_dir, or a run such as output_dir/truing",
                remedy="a checkpoint of a run has a path such as output_dir/truing/checkpoints/grpo-000020",
            )
        return Path(resume)
    names = (output / ("truing" if i == 1 else f"truing-{i}") for i in range(1, 10_000))
    runs = [path for path in output.glob("truing*") if path.is_dir()]
    if not resume:
        return next(path for path in names if not path.exists())
    if not runs:
        raise RecordError("there is no run to resume", got=output, expected="a run directory in output_dir")
    return max(runs, key=lambda path: path.stat().st_mtime)


def checkpoint_named(path: str | bool | None) -> CheckpointState | None:
    """Return the state of the checkpoint of a run that a path names; None if it names something else."""
    if not isinstance(path, str) or not (Path(path).parent.parent / "recipe.toml").is_file():
        return None
    return read_state(checkpoint_path(Path(path).parent, Path(path).name))


def best_checkpoint(run: Path) -> CheckpointState | None:
    """Return the state of the best checkpoint by evaluation of a run; None if there is no choice."""
    found = [event.payload for event in RunReader(run).events() if event.kind == "best"]
    return CheckpointState(found[-1]["stage"], found[-1]["step"]) if found else None
