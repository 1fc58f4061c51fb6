"""The run directory of a TRL script: ``truing``, ``truing-2``, … in its ``output_dir``; its checkpoints."""

from pathlib import Path
from shlex import quote

from truing.errors import RecordError
from truing.learner.checkpoint import CheckpointState, checkpoint_path, read_state
from truing.record import RunReader
from truing.terminal.run_result import command_name, doctor_line
from truing.terminal.say import say_all


def run_directory(output: Path, resume: str | bool | None) -> Path:
    """Return a new run directory in ``output``, or with ``resume`` the newest one (True) or a path's."""
    if isinstance(resume, str):
        path = Path(resume)
        if checkpoint_named(resume) is not None:
            return path.parent.parent
        if not (path / "recipe.toml").is_file():
            raise RecordError(
                "resume_from_checkpoint is not a checkpoint or a run directory",
                got=resume,
                expected="True, for the newest run in output_dir, a folder such as"
                " output_dir/checkpoint-100, or a run such as output_dir/truing",
                remedy="get_last_checkpoint(output_dir) of transformers.trainer_utils finds it; one that TRL"
                " wrote cannot be resumed",
            )
        return path
    names = (output / ("truing" if i == 1 else f"truing-{i}") for i in range(1, 10_000))
    runs = [path for path in output.glob("truing*") if path.is_dir()]
    if not resume:
        return next(path for path in names if not path.exists())
    if not runs:
        raise RecordError("there is no run to resume", got=output, expected="a run directory in output_dir")
    return max(runs, key=lambda path: path.stat().st_mtime)


def print_end(run: Path) -> None:
    """Print where the run is, what the doctor found, and the command of the board."""
    command = command_name()
    board = f"board: {command} board {quote(str(run))}"
    say_all([(f"run: {run}", ""), doctor_line(run, command), (board, "")], err=True)


def checkpoint_named(path: str | bool | None) -> CheckpointState | None:
    """Return the state of the checkpoint of a run that a path names; None if it names something else."""
    if not isinstance(path, str) or not (Path(path).parent.parent / "recipe.toml").is_file():
        return None
    return read_state(checkpoint_path(Path(path).parent, Path(path).name))


def best_checkpoint(run: Path) -> CheckpointState | None:
    """Return the state of the best checkpoint by evaluation of a run; None if there is no choice."""
    found = [event.payload for event in RunReader(run).events() if event.kind == "best"]
    return CheckpointState(found[-1]["stage"], found[-1]["step"]) if found else None
