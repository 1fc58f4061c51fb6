"""Checkpoints: everything that exact resume needs, as safetensors and JSON, written atomically.

    RUN/checkpoints/grpo-000040/trainable.safetensors   the weights that are trained, by parameter name
                                optimizer.safetensors   AdamW's moments and step counts, likewise
                                state.json              stage, step, weight digest
    RUN/checkpoints/last                                the newest one's name

Random numbers, data order and learning rate are functions of (seed, stage, step), so there is nothing
else to keep.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from truing.errors import RecordError
from truing.models.digest import digest

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class State:
    """Where a run stands: ``step`` updates of ``stage`` are done."""

    stage: str
    step: int
    weight_digest: str

    @property
    def name(self) -> str:
        """Folder name; sorts by step within a stage."""
        return f"{self.stage}-{self.step:06d}"


def save(
    folder: Path, stage: str, step: int, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer
) -> State:
    """Write a checkpoint and point ``last`` at it; a crash leaves the one before in place."""
    weights = {name: parameter.detach().cpu().contiguous() for name, parameter in parameters.items()}
    state = State(stage, step, digest(weights))
    target, building = folder / state.name, folder / f".{state.name}.tmp"
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        save_file(weights, building / "trainable.safetensors")
        save_file(_moments(parameters, optimizer), building / "optimizer.safetensors")
        (building / "state.json").write_text(json.dumps(asdict(state), indent=2))
        shutil.rmtree(target, ignore_errors=True)
        building.rename(target)
        pointer = folder / ".last.tmp"
        pointer.write_text(state.name)
        os.replace(pointer, folder / "last")
    except OSError as error:
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
    return State(**json.loads((checkpoint / "state.json").read_text()))


def drop(checkpoint: Path) -> None:
    """Remove a checkpoint that a newer one replaces."""
    shutil.rmtree(checkpoint)


def load_weights(checkpoint: Path, parameters: Mapping[str, nn.Parameter]) -> None:
    """Copy a checkpoint's weights into the parameters; their digest must be the recorded one."""
    state = read_state(checkpoint)
    weights = load_file(checkpoint / "trainable.safetensors")
    if weights.keys() != parameters.keys():
        odd = sorted(weights.keys() ^ parameters.keys())[:3]
        raise RecordError(f"{checkpoint} is of another model or adapter", got=odd, expected="the same parameters")
    if digest(weights) != state.weight_digest:
        raise RecordError(f"the weights in {checkpoint} are damaged", expected=f"digest {state.weight_digest[:12]}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def load_optimizer(
    checkpoint: Path, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer
) -> None:
    """Restore AdamW's state for each parameter that had one."""
    moments = load_file(checkpoint / "optimizer.safetensors")
    for name, parameter in parameters.items():
        if f"{name}/step" in moments:
            optimizer.state[parameter] = {key: moments[f"{name}/{key}"].to(_home(parameter, key)) for key in MOMENTS}


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
