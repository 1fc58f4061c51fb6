"""Folders ``checkpoint-N`` in ``output_dir``, by which scripts find where a run goes on.

N counts updates, as TRL does. A folder has the trainer's state and the name of a checkpoint of the run, whose
weights and optimizer stay in the run directory.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from transformers import TrainerState

from truing.errors import RecordError
from truing.learner.checkpoint import find_newest

POINTER, STATE = "truing.json", "trainer_state.json"
"""Files of such a folder: where the checkpoint is, and the state as transformers writes it."""


def write_folders(output: Path, run: Path, newest: str, updates: int, state: TrainerState) -> None:
    """Write the folder of a new checkpoint, and take away those of checkpoints that the run has removed.

    Args:
        output: ``output_dir``.
        run: the run directory in it.
        newest: name of the new checkpoint, such as ``grpo-000004``.
        updates: per step of the run.
        state: of the trainer.
    """
    folder = output / f"checkpoint-{int(newest.rpartition('-')[2]) * updates}"
    folder.mkdir(exist_ok=True)
    state.save_to_json(str(folder / STATE))
    pointer = {"run": run.name, "checkpoint": newest}
    (folder / POINTER).write_text(json.dumps(pointer) + "\n", encoding="utf-8")
    for other in _folders(output):
        there = _pointer(other)
        if there["run"] != run.name or not (run / "checkpoints" / there["checkpoint"]).is_dir():
            _take_away(other)


def remove_folders(output: Path) -> None:
    """Take away the folders of earlier runs, which keep their checkpoints."""
    for folder in _folders(output):
        _take_away(folder)


def run_of(folder: Path) -> Path:
    """Return the run directory of a checkpoint folder; raise unless it is that run's newest checkpoint."""
    there = _pointer(folder)
    run = folder.parent / there["run"]
    newest = find_newest(run / "checkpoints")
    if newest is None or newest.name != there["checkpoint"]:
        raise RecordError(
            "resume_from_checkpoint is not the newest checkpoint of its run",
            got=folder,
            expected="none is left" if newest is None else f"{newest.name} of {run}",
            remedy="pass True, or what get_last_checkpoint(output_dir) returns: a run goes on from its newest"
            " checkpoint",
        )
    return run


def saved_state(output: Path, run: Path) -> TrainerState | None:
    """Return the trainer's state at the newest checkpoint of a run; None if it has no folder."""
    newest = find_newest(run / "checkpoints")
    for folder in _folders(output):
        if newest is not None and _pointer(folder) == {"run": run.name, "checkpoint": newest.name}:
            return TrainerState.load_from_json(str(folder / STATE))
    return None


def is_checkpoint_folder(folder: Path) -> bool:
    """Whether a folder is one of these."""
    return (folder / POINTER).is_file()


def _folders(output: Path) -> Iterator[Path]:
    """Yield the checkpoint folders in ``output_dir`` that Truing wrote."""
    yield from filter(is_checkpoint_folder, sorted(output.glob("checkpoint-*")))


def _pointer(folder: Path) -> dict[str, str]:
    try:
        there = json.loads((folder / POINTER).read_text(encoding="utf-8"))
        return {name: Path(there[name]).name for name in ("run", "checkpoint")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            "a checkpoint folder cannot be read",
            got=f"{folder / POINTER}: {error}",
            expected="the names of a run and of its checkpoint",
            remedy="remove the folder: the checkpoint is in the run directory, resume_from_checkpoint=True",
        ) from error


def _take_away(folder: Path) -> None:
    """Remove what Truing wrote, and the folder unless a script has put files of its own there."""
    for name in (POINTER, STATE):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
