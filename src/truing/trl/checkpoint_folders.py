"""Folders ``checkpoint-N`` in ``output_dir``, by which scripts find where a run goes on.

N counts optimizer steps, as TRL does. A folder has the trainer's state and the name of a checkpoint of the
run, whose weights and optimizer stay in the run directory.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from transformers import TrainerState

from truing.errors import RecordError

POINTER, STATE = "truing.json", "trainer_state.json"
"""Files of such a folder: where the checkpoint is, and the state as transformers writes it."""


def write_folders(output: Path, run: Path, newest: str, optimizer_steps: int, state: TrainerState) -> None:
    """Write the folder of a new checkpoint, and take away those of checkpoints that the run has removed.

    Args:
        output: ``output_dir``.
        run: the run directory in it.
        newest: name of the new checkpoint, such as ``grpo-000004``.
        optimizer_steps: per step of the run.
        state: of the trainer.
    """
    folder = output / f"checkpoint-{int(newest.rpartition('-')[2]) * optimizer_steps}"
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


def checkpoint_of(resume: str | bool | None) -> str | bool | None:
    """Return the path of the run's checkpoint that a folder names; anything else unchanged."""
    if not isinstance(resume, str) or not _is_ours(folder := Path(resume)):
        return resume
    there = _pointer(folder)
    return str(folder.parent / there["run"] / "checkpoints" / there["checkpoint"])


def _is_ours(folder: Path) -> bool:
    """Whether a folder is one of these."""
    return (folder / POINTER).is_file()


def _folders(output: Path) -> Iterator[Path]:
    """Yield the checkpoint folders in ``output_dir`` that Truing wrote."""
    yield from filter(_is_ours, sorted(output.glob("checkpoint-*")))


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
