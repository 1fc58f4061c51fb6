"""The policy of a finished or running run, rebuilt from its recipe and a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from truing.config import Recipe, resolve
from truing.errors import RecordError
from truing.learner import checkpoint
from truing.learner.checkpoint import CheckpointState
from truing.models.digest import digest
from truing.models.load import LoadedModel
from truing.models.load_policy import as_it_computes, load_policy
from truing.models.lora import trainable_parameters
from truing.record import RunReader
from truing.types.sampling_params import SamplingParams


@dataclass(frozen=True, eq=False)
class RestoredPolicy:
    """A policy with the weights of a checkpoint, and its sampling parameters."""

    recipe: Recipe
    loaded: LoadedModel
    policy: nn.Module
    sampling_params: SamplingParams


def restore_policy(run_dir: Path, name: str | None = None) -> RestoredPolicy:
    """Return the policy of a run at a checkpoint, by default the newest, as it computes and samples.

    Args:
        run_dir: a run directory.
        name: a folder under ``checkpoints``, such as ``grpo-000040``.
    """
    recipe = resolve(RunReader(run_dir).recipe_table())
    loaded, policy = load_policy(recipe)
    restore_weights(run_dir, loaded, trainable_parameters(policy), name)
    policy = as_it_computes(policy, recipe)
    return RestoredPolicy(recipe, loaded, policy.eval(), recipe.sampling.to_params(loaded.stop_ids))


def restore_weights(
    run_dir: Path, loaded: LoadedModel, parameters: Mapping[str, nn.Parameter], name: str | None = None
) -> None:
    """Copy a checkpoint of a run (by default the newest) into a policy made by ``load_policy``."""
    run = RunReader(run_dir)
    recorded_digest = run.run_fact("model", "digest")
    if run.run_fact("recipe", "lora") and loaded.digest != recorded_digest:
        raise RecordError(
            "the base model is not the one that this run's adapter was trained on",
            got=f"{loaded.path}: digest {loaded.digest[:12]}",
            expected=f"digest {recorded_digest[:12]}",
            remedy="restore the original model; the adapter works with its weights only",
        )
    check_same_adapter(run, digest(parameters))
    checkpoint.load_table(_checkpoint(run_dir / "checkpoints", name), "trainable", parameters)


def check_same_adapter(run: RunReader, trainable_digest: str) -> None:
    """Raise if the adapter that a run started from has changed since; its reference would be another."""
    lora = run.run_fact("recipe", "lora")
    if lora and lora.get("adapter") and trainable_digest != run.run_fact("trainable_digest"):
        raise RecordError(
            "the adapter that this run started from has changed",
            got=f"{lora['adapter']}: digest {trainable_digest[:12]}",
            expected=f"digest {run.run_fact('trainable_digest')[:12]}",
            remedy="restore that folder as it was at the start of the run",
        )


def checkpoint_after(run_dir: Path, step: int, stage: str | None = None) -> str:
    """Return the name of the checkpoint after ``step`` steps, of a stage or of the last that has one."""
    stages = RunReader(run_dir).run_fact("recipe", "stages")
    saved = {name: checkpoint.saved_steps(run_dir / "checkpoints", name) for name in stages}
    for name in reversed(saved):
        if stage in (None, name) and step in saved[name]:
            return CheckpointState(name, step).name
    kept = [f"{name} {', '.join(map(str, steps))}" for name, steps in saved.items() if steps]
    raise RecordError(
        "this run has no checkpoint after these steps",
        got=f"step {step}{f' of {stage}' if stage else ''}",
        expected=f"one of those that are kept: {'; '.join(kept) or 'none yet'}",
        remedy="choose one of them; checkpoint_limit and checkpoint_every say how many are kept",
    )


def _checkpoint(folder: Path, name: str | None) -> Path:
    """Return the folder of a checkpoint; raise if there is none."""
    path = checkpoint.find_newest(folder) if name is None else checkpoint.checkpoint_path(folder, name)
    if path is None or not path.is_dir():
        raise RecordError(
            "this run has no such checkpoint",
            got=path or folder,
            expected="a folder under checkpoints/",
            remedy="train until the first checkpoint, or name an existing one",
        )
    return path
