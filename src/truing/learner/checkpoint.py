"""Checkpoints: everything that exact resume needs, as safetensors and JSON, written atomically.

    RUN/checkpoints/grpo-000040/trainable.safetensors   the policy's trained weights, by parameter name
                                critic.safetensors      the critic's own weights, if the stage has a critic
                                reference.safetensors   the reference's weights, if the recipe syncs it
                                optimizer.safetensors   AdamW's moments and step counts
                                state.json              stage, step, digests, coefficients of the loss terms,
                                                        rollbacks, facts that the next update records
    RUN/checkpoints/last                                the name of the newest one

Random numbers, data order and learning rate are functions of (seed, stage, step), so nothing else is kept.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from truing.distributed.ranks import ONE, Ranks
from truing.distributed.sharding import copy_whole, like, whole
from truing.errors import RecordError
from truing.models.digest import digest
from truing.models.finite_check import check_finite
from truing.utils.atomic_files import move_into_place, write_atomically

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


WeightTables = Mapping[str, Mapping[str, Tensor]]
"""Weights by name: of the policy (``trainable``) and, if kept, of the ``critic`` and the ``reference``."""


@dataclass(frozen=True)
class CheckpointState:
    """Position and state of a run: ``step`` updates of ``stage`` are done."""

    stage: str
    step: int
    digests: Mapping[str, str] = field(default_factory=dict[str, str])  # of each table
    control: Mapping[str, float] = field(default_factory=dict[str, float])  # ``LossCoefficients``
    rollbacks: int = 0  # of the stage, so far
    between: Mapping[str, Any] = field(default_factory=dict[str, Any])  # facts that the next update records

    @property
    def name(self) -> str:
        """Return the folder name; it sorts by step within a stage."""
        return f"{self.stage}-{self.step:06d}"


def save(
    folder: Path,
    state: CheckpointState,
    tables: WeightTables,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks = ONE,
) -> CheckpointState:
    """Write a checkpoint and point ``last`` at it; return its state with the digests of the tables.

    A crash leaves the previous checkpoint in place. The first rank writes, with the parts of all.
    """
    on_cpu = {name: _on_cpu(table) for name, table in tables.items()}
    state = replace(state, digests={name: digest(table) for name, table in on_cpu.items()})
    moments = _moments(tables, optimizer)
    ranks.on_first("a checkpoint", lambda: _write_folder(folder, state, on_cpu, moments))
    return state


def _write_folder(
    folder: Path, state: CheckpointState, on_cpu: WeightTables, moments: Mapping[str, Tensor]
) -> None:
    """Write the folder of a checkpoint, then move it into place."""
    target, building = folder / state.name, folder / f".{state.name}.tmp"
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        for name, table in on_cpu.items():
            _write(building / f"{name}.safetensors", table)
        _write(building / "optimizer.safetensors", moments)
        _write_state(building, state)
        shutil.rmtree(target, ignore_errors=True)
        move_into_place(building, target)
        write_atomically(folder / "last", state.name.encode())
    except (OSError, SafetensorError) as error:
        shutil.rmtree(building, ignore_errors=True)
        raise RecordError(
            f"the checkpoint {target} cannot be written",
            got=error,
            remedy="free space, then resume with --resume: everything up to the last checkpoint is kept",
        ) from error


def rewind_to(folder: Path, state: CheckpointState) -> None:
    """Make a checkpoint the newest: write its (changed) state and remove later ones of the stage."""
    _write_state(folder / state.name, state)
    write_atomically(folder / "last", state.name.encode())
    for step in saved_steps(folder, state.stage):
        if step > state.step:
            remove(folder / CheckpointState(state.stage, step).name)


def saved_steps(folder: Path, stage: str) -> list[int]:
    """Return the steps of a stage that have a checkpoint, ascending."""
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob(f"{stage}-[0-9]*"))


def find_newest(folder: Path) -> Path | None:
    """Return the folder of the newest checkpoint; None before the first."""
    pointer = folder / "last"
    return folder / pointer.read_text().strip() if pointer.exists() else None


def read_state(checkpoint: Path) -> CheckpointState:
    """Return the run's state at a checkpoint."""
    try:
        return CheckpointState(**json.loads((checkpoint / "state.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise _damaged_error(checkpoint / "state.json", error) from error


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint; a crash leaves it whole or hidden."""
    hidden = checkpoint.with_name(f".{checkpoint.name}.gone")
    shutil.rmtree(hidden, ignore_errors=True)
    move_into_place(checkpoint, hidden)
    shutil.rmtree(hidden)


def load(checkpoint: Path, tables: WeightTables, optimizer: torch.optim.Optimizer) -> None:
    """Load what ``save`` wrote: weights, and AdamW's state of each weight that had one."""
    for name, table in tables.items():
        load_table(checkpoint, name, table)
    optimizer.state.clear()  # weights without saved moments start without moments
    file = checkpoint / "optimizer.safetensors"
    moments = _read(file)
    _check_finite(moments, file)
    for name, weight in _optimized_weights(tables, optimizer).items():
        if f"{name}/step" in moments:
            # fused AdamW keeps its step counts on the weights' device
            count = moments[f"{name}/step"].to(weight.device)
            averages = {key: like(weight, moments[f"{name}/{key}"]) for key in MOMENTS[1:]}
            optimizer.state[weight] = {"step": count, **averages}


def load_table(checkpoint: Path, name: str, table: Mapping[str, Tensor]) -> None:
    """Copy one table of a checkpoint into the given weights; its digest must match the recorded one."""
    file, recorded_digest = checkpoint / f"{name}.safetensors", read_state(checkpoint).digests.get(name, "")
    weights = _read(file)
    saved_shapes, expected_shapes = (
        {key: tensor.shape for key, tensor in tensors.items()} for tensors in (weights, table)
    )
    if saved_shapes != expected_shapes:
        different = sorted({key for key, _ in saved_shapes.items() ^ expected_shapes.items()})[:3]
        raise RecordError(
            f"{checkpoint} is of another model or adapter",
            got=different,
            expected="the same parameters",
        )
    if digest(weights) != recorded_digest:
        raise _damaged_error(file, f"a digest other than the recorded {recorded_digest[:12]}")
    _check_finite(weights, file)
    with torch.no_grad():
        for key, weight in table.items():
            copy_whole(weight, weights[key])


def _on_cpu(table: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: whole(weight.detach()).cpu().contiguous() for name, weight in table.items()}


def _write_state(checkpoint: Path, state: CheckpointState) -> None:
    write_atomically(checkpoint / "state.json", json.dumps(asdict(state), indent=2).encode())


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors and fsync the file before it is renamed into place."""
    save_file(dict(tensors), path)
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def _read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _damaged_error(path, error) from error


def _check_finite(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Raise if a checkpoint contains NaN or infinity."""
    check_finite(
        tensors,
        "the checkpoint contains numbers that are not finite",
        file,
        remedy="write the name of an older checkpoint into checkpoints/last, and lower the learning rate",
        error=RecordError,
    )


def _damaged_error(path: Path, got: object) -> RecordError:
    return RecordError(
        f"{path} is missing or damaged",
        got=got,
        remedy="restore it from a copy, or write the name of an older checkpoint into checkpoints/last",
    )


def _moments(tables: WeightTables, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return AdamW's state by ``weight/key``."""
    return {
        f"{name}/{key}": whole(optimizer.state[weight][key].detach()).cpu().contiguous()
        for name, weight in _optimized_weights(tables, optimizer).items()
        if weight in optimizer.state
        for key in MOMENTS
    }


def _optimized_weights(tables: WeightTables, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights that the optimizer updates, by name; a reference has none."""
    updated_ids = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    return {name: w for table in tables.values() for name, w in table.items() if id(w) in updated_ids}
