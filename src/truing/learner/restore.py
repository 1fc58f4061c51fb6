"""The policy of a finished or running run, rebuilt from its recipe and a checkpoint."""

import datetime
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truing.analysis.compare import flatten
from truing.config import Recipe, resolve, to_toml
from truing.distributed.ranks import ONE, Ranks
from truing.errors import RecordError
from truing.learner import checkpoint
from truing.learner.checkpoint import CheckpointState
from truing.models.digest import digest
from truing.models.forward.float32_embedding import use_float32_sums
from truing.models.forward.float32_head import use_float32_head
from truing.models.load import LoadedModel, load
from truing.models.lora import add_lora, trainable_parameters
from truing.models.precision import with_weights_in
from truing.models.saved_adapter import add_saved_adapter, read_adapter
from truing.record import RunReader
from truing.types.sampling_params import SamplingParams
from truing.utils.rng import seed_of


@dataclass(frozen=True, eq=False)
class RestoredPolicy:
    """A policy with the weights of a checkpoint, and its sampling parameters."""

    recipe: Recipe
    loaded: LoadedModel
    policy: nn.Module
    sampling_params: SamplingParams


def load_policy(recipe: Recipe, ranks: Ranks = ONE) -> tuple[LoadedModel, nn.Module]:
    """Return the model of a recipe, and the policy: the model itself, or the model with an adapter.

    If the ranks have a mesh, each weight of the model is this rank's part of it; with ``trainer.offload`` the
    part is in main memory.

    A base under an adapter has the dtype that the recipe computes in. Weights that are trained are float32.
    """
    model, dtype = recipe.model, computing_dtype_of(recipe)
    offload = recipe.trainer.offload and ranks.mesh is not None
    loaded = load(
        model.name,
        revision=model.revision,
        chat_template=model.chat_template,
        device="cpu" if offload else model.device,
        dtype=dtype if recipe.lora else torch.float32,
        quantized=model.quantization is not None,
        ranks=ranks.in_main_memory() if offload else ranks,
    )
    if dtype is torch.bfloat16:
        use_float32_head(loaded.model)
        use_float32_sums(loaded.model)
    return loaded, add_adapter(loaded, recipe)


def add_adapter(loaded: LoadedModel, recipe: Recipe) -> nn.Module:
    """Return the policy of a loaded model: with a new adapter, with a saved one, or the model itself."""
    lora = recipe.lora
    if not lora:
        return loaded.model
    declared = lora.model_dump(include={"rank", "alpha", "targets"})
    if lora.adapter is None:
        seed = seed_of(recipe.seed, "lora")
        return add_lora(loaded.model, **declared, dropout=lora.dropout, seed=seed)
    return add_saved_adapter(loaded, read_adapter(lora.adapter), **declared, dropout=lora.dropout)


def computing_dtype_of(recipe: Recipe) -> torch.dtype:
    """Return the dtype in which a recipe's model computes."""
    return getattr(torch, recipe.model.dtype)


def dtype_of_masters(recipe: Recipe) -> torch.dtype | None:
    """Return the dtype in which float32 weights compute if it is another one; else None."""
    dtype = computing_dtype_of(recipe)
    return None if recipe.lora or dtype is torch.float32 else dtype


def needs_fsdp(recipe: Recipe) -> bool:
    """Return whether FSDP2 holds the weights of one process too."""
    return dtype_of_masters(recipe) is not None or recipe.trainer.offload


def as_it_computes(policy: nn.Module, recipe: Recipe) -> nn.Module:
    """Return a policy with the weights that compute and sample: float32 masters are copied and rounded."""
    dtype = dtype_of_masters(recipe)
    return policy if dtype is None else with_weights_in(dtype, policy)


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


def with_recorded_replicas(recipe: Recipe, run: RunReader) -> Recipe:
    """Return a recipe with the replicas of a run in place of "auto", if the run had as many ranks.

    Another choice, by another free memory, would change the rounding of sums.
    """
    trainer, machine = recipe.trainer, run.run_fact("machine")
    replicas = machine.get("replicas") if isinstance(machine, dict) else None  # an earlier version has none
    is_known = isinstance(replicas, int) and replicas > 0 and trainer.ranks % replicas == 0
    recorded_ranks = resolve(run.run_fact("recipe")).trainer.ranks
    if trainer.replicate != "auto" or not is_known or recorded_ranks != trainer.ranks:
        return recipe
    return recipe.model_copy(update={"trainer": trainer.model_copy(update={"replicate": replicas})})


def with_recorded_date(recipe: Recipe, recorded: Mapping[str, Any]) -> Recipe:
    """Return a recipe with the date of a run's prompts, unless it has a date of its own."""
    date = resolve(recorded).chat.date
    if recipe.chat.date is not None or date is None:
        return recipe
    return with_date(recipe, date)


def with_date(recipe: Recipe, date: datetime.date | None) -> Recipe:
    """Return a recipe with the date of its prompts."""
    return recipe.model_copy(update={"chat": recipe.chat.model_copy(update={"date": date})})


def check_same_recipe(recipe: Recipe, recorded: Mapping[str, Any], longer: Sequence[str] = ()) -> None:
    """Raise if a run is resumed with another recipe than it was started with.

    Keys that do not change the training may differ: of diagnosis, of the number of ranks and servers, and of
    checkpoints, unless a guard returns to them. A key that the version of the run did not know has its
    default.

    Args:
        recipe: to resume with.
        recorded: the table that the run was started with.
        longer: stages that may have more steps than before.
    """
    started = resolve(recorded)
    current, original = (flatten(tomllib.loads(to_toml(each))) for each in (recipe, started))
    free = {"engine.count", "checkpoint_limit", *(() if recipe.guard else ("checkpoint_every",))}
    for key in sorted(current.keys() | original.keys()):
        new, old = current.get(key), original.get(key)
        if key.startswith(("doctor.", "trainer.")) or key in free or new == old:
            continue
        name = key.removesuffix(".steps")
        if name in longer and isinstance(new, int) and isinstance(old, int) and new > old:
            continue
        secret = key == "alerts.webhook"
        raise RecordError(
            f"recipe key '{key}' differs: the run was started with another recipe",
            got=None if secret else new,
            expected=None if secret else f"at least {old}" if name in longer else old,
            remedy="resume with the settings of the run, or start a new run in another folder",
        )
