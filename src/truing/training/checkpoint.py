"""Checkpoints: everything that exact resume needs, as safetensors and JSON, written atomically.

    RUN/checkpoints/grpo-000040/trainable.safetensors   the policy's trained weights, by parameter name
                                critic.safetensors      the critic's own, where there is one
                                optimizer.safetensors   AdamW's moments and step counts of both
                                state.json              stage, step, weight digests, weights of terms
    RUN/checkpoints/last                                the newest one's name

Random numbers, data order and learning rate are functions of (seed, stage, step), so there is nothing
else to keep.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from truing.errors import RecordError
from truing.models.digest import digest
from truing.record.files import move_into_place, write_atomically

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class State:
    """Where a run stands: ``step`` updates of ``stage`` are done."""

    stage: str
    step: int
    weight_digest: str
    critic_digest: str = ""  # where there is a critic
    control: Mapping[str, float] = field(default_factory=dict[str, float])  # weights of terms, as they stand

    @property
    def name(self) -> str:
        """Folder name; sorts by step within a stage."""
        return f"{self.stage}-{self.step:06d}"


def save(
    folder: Path,
    stage: str,
    step: int,
    optimizer: torch.optim.Optimizer,
    control: Mapping[str, float],
    parameters: Mapping[str, nn.Parameter],
    critic: Mapping[str, nn.Parameter] | None = None,
) -> State:
    """Write a checkpoint and point ``last`` at it; a crash leaves the one before in place."""
    weights, of_critic = _on_cpu(parameters), _on_cpu(critic or {})
    state = State(stage, step, digest(weights), digest(of_critic) if of_critic else "", control)
    target, building = folder / state.name, folder / f".{state.name}.tmp"
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        _write(building / "trainable.safetensors", weights)
        if of_critic:
            _write(building / "critic.safetensors", of_critic)
        _write(building / "optimizer.safetensors", _moments({**parameters, **(critic or {})}, optimizer))
        write_atomically(building / "state.json", json.dumps(asdict(state), indent=2).encode())
        shutil.rmtree(target, ignore_errors=True)
        move_into_place(building, target)
        write_atomically(folder / "last", state.name.encode())
    except (OSError, SafetensorError) as error:
        shutil.rmtree(building, ignore_errors=True)
        raise RecordError(
            f"the checkpoint {target} cannot be written",
            got=error,
            remedy="free space, then go on with --resume: everything up to the last checkpoint is kept",
        ) from error
    return state


def find_newest(folder: Path) -> Path | None:
    """The folder of the newest checkpoint, or None where none was written yet."""
    pointer = folder / "last"
    return folder / pointer.read_text().strip() if pointer.exists() else None


def read_state(checkpoint: Path) -> State:
    """Where the run stood at a checkpoint."""
    try:
        return State(**json.loads((checkpoint / "state.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(checkpoint / "state.json", error) from error


def drop(checkpoint: Path) -> None:
    """Remove a checkpoint that a newer one replaces."""
    shutil.rmtree(checkpoint)


def load_weights(checkpoint: Path, parameters: Mapping[str, nn.Parameter]) -> None:
    """Copy the policy's weights at a checkpoint into its parameters."""
    _load(checkpoint, "trainable.safetensors", read_state(checkpoint).weight_digest, parameters)


def _load(checkpoint: Path, file: str, recorded: str, parameters: Mapping[str, nn.Parameter]) -> None:
    """Copy the weights of a file into parameters; their digest must be the recorded one."""
    weights = _read(checkpoint / file)
    saved, wanted = ({name: tensor.shape for name, tensor in each.items()} for each in (weights, parameters))
    if saved != wanted:
        odd = sorted({name for name, _ in saved.items() ^ wanted.items()})[:3]
        raise RecordError(
            f"{checkpoint} is of another model or adapter", got=odd, expected="the same parameters"
        )
    if digest(weights) != recorded:
        raise _damaged(checkpoint / file, f"not the digest {recorded[:12]}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def load(
    checkpoint: Path,
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    critic: Mapping[str, nn.Parameter] | None = None,
) -> None:
    """All that ``save`` wrote: weights, and AdamW's state for each that had one."""
    load_weights(checkpoint, parameters)
    if critic:
        _load(checkpoint, "critic.safetensors", read_state(checkpoint).critic_digest, critic)
    _load_optimizer(checkpoint, {**parameters, **(critic or {})}, optimizer)


def _load_optimizer(
    checkpoint: Path, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer
) -> None:
    """Restore AdamW's state for each parameter that had one."""
    moments = _read(checkpoint / "optimizer.safetensors")
    for name, parameter in parameters.items():
        if f"{name}/step" in moments:
            optimizer.state[parameter] = {
                key: moments[f"{name}/{key}"].to(_home(parameter, key)) for key in MOMENTS
            }


def _on_cpu(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().cpu().contiguous() for name, parameter in parameters.items()}


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors and sync them, so that a name put in place later names whole files."""
    save_file(dict(tensors), path)
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, got: object) -> RecordError:
    return RecordError(
        f"{path} is missing or damaged",
        got=got,
        remedy="restore it from a copy, or write the name of an older checkpoint into checkpoints/last",
    )


def _moments(parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's state by parameter name and key."""
    return {
        f"{name}/{key}": optimizer.state[parameter][key].detach().cpu().contiguous()
        for name, parameter in parameters.items()
        if parameter in optimizer.state
        for key in MOMENTS
    }


def _home(parameter: nn.Parameter, key: str) -> torch.device:
    """AdamW keeps its step counts on the CPU."""
    return torch.device("cpu") if key == "step" else parameter.device
