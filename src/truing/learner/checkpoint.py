"""Checkpoints: everything that exact resume needs, as safetensors and JSON, written atomically.

    RUN/checkpoints/grpo-000040/trainable.safetensors   the policy's trained weights, by parameter name
                                critic.safetensors      the critic's own weights, if the stage has a critic
                                reference.safetensors   the reference's weights, if the recipe syncs it
                                optimizer.safetensors   AdamW's moments and step counts
                                state.json              stage, step, digests, coefficients of the loss terms,
                                                        rollbacks, facts that the next step records
    RUN/checkpoints/last                                the name of the newest one

Several ranks write a file each instead, such as trainable-00001-of-00002.safetensors with the shards of the
first rank (``distributed/shard_files.py``); any number of ranks reads them. Random numbers, data order and
learning rate are functions of (seed, stage, step), so nothing else is kept.

A resumed run restores, in this order: its position (``trainer/loop.py``, ``restore``), the weights that the
stage began with and what follows from them, then policy, critic, synced reference and moments
(``Learner.restore``), and what state.json has, with the doctor's and the guard's past (``StageTrainer``).
Weights are compared with their digests in state.json as they are read; the moments, part by part, with those
of the last step by OPT010.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from truing.distributed.ranks import ONE, Ranks
from truing.distributed.saved_table import SavedTable, damaged_error
from truing.distributed.shard_files import save_tables
from truing.distributed.sharded_tensors import local
from truing.errors import RecordError
from truing.models.digest import digest
from truing.models.finite_check import check_finite
from truing.utils.atomic_files import disk_errors, move_into_place, write_atomically
from truing.utils.file_names import is_file_name
from truing.utils.parse import parse_json
from truing.utils.regular_files import read_regular_text

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


WeightTables = Mapping[str, Mapping[str, Tensor]]
"""Weights by name: of the policy (``trainable``) and, if kept, of the ``critic`` and the ``reference``."""


@dataclass(frozen=True)
class CheckpointState:
    """Position and state of a run: ``step`` steps of ``stage`` are done."""

    stage: str
    step: int
    digests: Mapping[str, str] = field(default_factory=dict[str, str])  # of each table
    coefficients: Mapping[str, float] = field(default_factory=dict[str, float])  # ``LossCoefficients``
    rollbacks: int = 0  # of the stage, so far
    pending_facts: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the next step records them

    @property
    def name(self) -> str:
        """Return the folder name; it sorts by step within a stage."""
        return f"{self.stage}-{self.step:06d}"

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the facts of the event ``checkpoint``."""
        return {"name": self.name, "weight_digest": self.digests["trainable"]}


def save(
    folder: Path,
    state: CheckpointState,
    tables: WeightTables,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks = ONE,
) -> CheckpointState:
    """Write a checkpoint and point ``last`` at it; return its state with the digests of the tables.

    All ranks call this, and each writes its shards. A crash at any moment leaves the previous checkpoint.
    """
    state = replace(state, digests={name: digest(table) for name, table in tables.items()})
    target, building = folder / state.name, folder / f".{state.name}.tmp"
    contents = {**tables, "optimizer": _moments(tables, optimizer)}
    try:
        save_tables(building, contents, ranks, lambda: _complete(building, target, state))
    except (OSError, SafetensorError) as error:
        shutil.rmtree(building, ignore_errors=True)
        raise RecordError(
            f"the checkpoint {target} cannot be written",
            got=error,
            remedy="free space, then resume with --resume: everything up to the last checkpoint is kept",
        ) from error
    return state


def _complete(building: Path, target: Path, state: CheckpointState) -> None:
    """Move a checkpoint, of which all tables are written, into place and point ``last`` at it."""
    write_state(building, state)
    if target.exists():  # of a save that was killed before it pointed ``last`` at it
        remove(target)
    move_into_place(building, target)
    write_atomically(target.parent / "last", state.name.encode())


def rewind_to(folder: Path, state: CheckpointState) -> None:
    """Make a checkpoint the newest: write its (changed) state and remove later ones of the stage."""
    write_state(folder / state.name, state)
    write_atomically(folder / "last", state.name.encode())
    for step in saved_steps(folder, state.stage):
        if step > state.step:
            remove(folder / CheckpointState(state.stage, step).name)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed saves and removals left: hidden folders, and files that were not renamed."""
    with disk_errors(folder):
        for path in (*folder.glob(".*.tmp"), *folder.glob(".*.gone")):
            shutil.rmtree(path)
        (folder / "last.tmp").unlink(missing_ok=True)


def saved_steps(folder: Path, stage: str) -> list[int]:
    """Return the steps of a stage that have a checkpoint, ascending."""
    names = (path.name.rpartition("-")[2] for path in folder.glob(f"{stage}-[0-9]*"))
    return sorted(int(name) for name in names if re.fullmatch(r"[0-9]{1,15}", name))


def find_newest(folder: Path) -> Path | None:
    """Return the folder of the newest checkpoint; None before the first."""
    _check_inside(folder, folder)  # also before the first: a resumed run writes and removes there
    pointer = folder / "last"
    if not os.path.lexists(pointer):
        return None
    _check_inside(folder, pointer)
    try:
        return checkpoint_path(folder, read_regular_text(pointer).strip())
    except (OSError, UnicodeDecodeError) as error:
        raise damaged_error(pointer, error) from error


def checkpoint_path(folder: Path, name: str) -> Path:
    """Return the folder of a checkpoint, which may not exist; raise if a name or link leads out of the run.

    A run directory may come from somebody else, and its weights are what is exported and trained further.
    """
    path = folder / name
    if not is_file_name(name):
        raise RecordError(
            "this is not the name of a checkpoint",
            got=f"{name[:100]!r}, under {folder}",
            expected="the name of a folder there, such as grpo-000040",
            remedy="write the name of a checkpoint of this run into checkpoints/last",
        )
    for each in (path, *(path.iterdir() if path.is_dir() else ())):
        _check_inside(folder, each)
    return path


def _check_inside(folder: Path, path: Path) -> None:
    """Raise if a path in the folder of checkpoints leads out of the run directory."""
    target = Path(os.path.realpath(path))  # of a link to itself: the link
    if not target.is_relative_to(os.path.realpath(folder.parent)):
        raise RecordError(
            f"{path} is a link that leads out of the run directory",
            got=target,
            expected="checkpoints in the run directory",
            remedy="copy the checkpoints into the run directory, if you trust them",
        )


def read_state(checkpoint: Path) -> CheckpointState:
    """Return the run's state at a checkpoint."""
    try:
        state = CheckpointState(**parse_json(read_regular_text(checkpoint / "state.json")))
        _check_types(state)
        name = state.name
    except (OSError, ValueError, TypeError) as error:
        raise damaged_error(checkpoint / "state.json", error) from error
    if name != checkpoint.name:
        raise damaged_error(checkpoint / "state.json", f"the state of {name!r}")
    return state


def _check_types(state: CheckpointState) -> None:
    """Raise a TypeError if a state that was read from a file has values of other types."""
    kinds = {
        "stage": str,
        "step": int,
        "digests": dict,
        "coefficients": dict,
        "rollbacks": int,
        "pending_facts": dict,
    }
    parts = [(name, getattr(state, name), kind) for name, kind in kinds.items()]
    parts += [(f"digests.{name}", value, str) for name, value in dict(state.digests).items()]
    for name, value, kind in parts:
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r:.100}")


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint; a crash leaves it whole or hidden."""
    hidden = checkpoint.with_name(f".{checkpoint.name}.gone")
    with disk_errors(checkpoint):
        shutil.rmtree(hidden, ignore_errors=True)
        move_into_place(checkpoint, hidden)
        shutil.rmtree(hidden)


def load(checkpoint: Path, tables: WeightTables, optimizer: torch.optim.Optimizer) -> None:
    """Load weights, and AdamW's state of those that had one, as saved by any number of ranks."""
    for name, table in tables.items():
        load_table(checkpoint, name, table)
    optimizer.state.clear()  # weights without saved moments start without moments
    saved = SavedTable(checkpoint, "optimizer")
    states = {
        name: _empty_state(saved, name, weight)
        for name, weight in _optimized_weights(tables, optimizer).items()
        if f"{name}/step" in saved
    }
    moments = {f"{name}/{key}": moment for name, state in states.items() for key, moment in state.items()}
    saved.load_into(moments)
    _check_finite({name: local(moment) for name, moment in moments.items()}, saved.files)
    for name, weight in _optimized_weights(tables, optimizer).items():
        if name in states:
            optimizer.state[weight] = states[name]


def load_table(checkpoint: Path, name: str, table: Mapping[str, Tensor]) -> None:
    """Copy one table of a checkpoint into the given weights; its digest must match the recorded one."""
    recorded_digest = read_state(checkpoint).digests.get(name, "")
    saved = SavedTable(checkpoint, name)
    saved_shapes, expected_shapes = saved.shapes(), {key: tensor.shape for key, tensor in table.items()}
    if saved_shapes != expected_shapes:
        different = sorted({key for key, _ in saved_shapes.items() ^ expected_shapes.items()})[:3]
        raise RecordError(
            f"{checkpoint} is of another model or adapter",
            got=different,
            expected="the same parameters",
        )
    if digest(saved) != recorded_digest:
        files = " or ".join(map(str, saved.files))
        raise damaged_error(files, f"a digest other than the recorded {recorded_digest[:12]}")
    _check_finite(saved, saved.files)
    saved.load_into(table)


def write_state(checkpoint: Path, state: CheckpointState) -> None:
    """Write the run's state at a checkpoint."""
    write_atomically(checkpoint / "state.json", json.dumps(asdict(state), indent=2).encode())


def _check_finite(tensors: Mapping[str, Tensor], files: Sequence[Path]) -> None:
    """Raise if a checkpoint contains NaN or infinity."""
    check_finite(
        tensors,
        "the checkpoint contains numbers that are not finite",
        " or ".join(map(str, files)),
        remedy="write the name of an older checkpoint into checkpoints/last, and lower the learning rate",
        error=RecordError,
    )


def _moments(tables: WeightTables, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return AdamW's state by ``weight/key``."""
    return {
        f"{name}/{key}": optimizer.state[weight][key]
        for name, weight in _optimized_weights(tables, optimizer).items()
        if weight in optimizer.state
        for key in MOMENTS
    }


def _empty_state(saved: SavedTable, name: str, weight: Tensor) -> dict[str, Tensor]:
    """Return AdamW's state of a weight, sharded as the weight is, to load the saved one into."""
    count, *averages = (saved.tensor_metadata(f"{name}/{key}").properties.dtype for key in MOMENTS)
    return {
        # fused AdamW keeps its step counts on the weights' device
        "step": torch.empty((), dtype=count, device=weight.device),
        **{
            key: torch.empty_like(weight, dtype=dtype)
            for key, dtype in zip(MOMENTS[1:], averages, strict=True)
        },
    }


def _optimized_weights(tables: WeightTables, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights that the optimizer updates, by name; a reference has none."""
    updated_ids = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    return {name: w for table in tables.values() for name, w in table.items() if id(w) in updated_ids}
