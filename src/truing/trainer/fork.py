"""Forks a run: one that begins with the state of a checkpoint of another, under a changed recipe."""

import os
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from truing.analysis.compare import flatten
from truing.config import Recipe, resolve, to_toml
from truing.config.overrides import with_overrides
from truing.errors import RecipeError, RecordError
from truing.learner import checkpoint
from truing.learner.checkpoint import CheckpointState
from truing.learner.coefficients import LossCoefficients
from truing.learner.restore import checkpoint_after
from truing.record import RunReader, RunWriter, compact
from truing.record.store import ABANDONED
from truing.record.undone_steps import link_or_copy
from truing.trainer.go_back import go_back
from truing.utils.atomic_files import disk_errors

SHAPES = ("model.name", "model.revision", "model.quantization", "model.dtype", "ppo.critic")
"""Keys that decide which weights there are; those of ``lora`` do too, without its dropout."""

BEFORE = ("recipe", "sampling_params", "judged")
"""What run.json says of the steps before a fork, which the fork's own event keeps."""


def fork(
    run: Path,
    to: Path,
    changes: Sequence[str] = (),
    step: int | None = None,
    stage: str | None = None,
    *,
    check_only: bool = False,
) -> str:
    """Make a run directory that goes on from a checkpoint of another; return what was made.

    ``truing train TO/recipe.toml --out TO --resume`` trains it: with the checkpoint's weights, moments,
    coefficients (those that the changes set, of the changed recipe), position in the data and random numbers.
    Without changes it has the bits that the run had.

    Args:
        run: a run directory that no process writes.
        to: the new run directory.
        changes: of the recipe, as ``key=value``.
        step: steps of the stage; by default those of the newest checkpoint.
        stage: of the checkpoint; by default the last stage that has one after ``step`` steps.
        check_only: make nothing; only raise if it could not be made.

    Raises:
        RecipeError: The checkpoint does not fit to the changed recipe.
        RecordError: There is no such checkpoint, or ``to`` exists.
    """
    if to.exists():
        raise RecordError("the directory of a fork exists already", got=to, expected="a new directory")
    folder = run / "checkpoints"
    newest = checkpoint.find_newest(folder) if step is None else folder / checkpoint_after(run, step, stage)
    if newest is None:
        raise RecordError(f"{run} has no checkpoint", remedy="train until the first one")
    state, facts = checkpoint.read_state(newest), RunReader(run).run_json()
    before = resolve(RunReader(run).recipe_table())
    recipe = resolve(with_overrides(tomllib.loads(to_toml(before)), changes))
    _check_fits(before, recipe, state)
    if check_only:
        return ""
    building = to.with_name(f".{to.name}.tmp")
    with disk_errors(to):
        shutil.rmtree(building, ignore_errors=True)
        shutil.copytree(run, building, ignore=shutil.ignore_patterns(ABANDONED), copy_function=_link_weights)
        go_back(building, state.step, state.stage)
        shutil.rmtree(building / ABANDONED, ignore_errors=True)
        compact(building)  # without the steps that only the parent has
        checkpoint.write_state(building / "checkpoints" / state.name, _under(state, before, recipe))
        _declare(building, run, recipe, state, changes, facts)
        os.rename(building, to)
    under = " ".join(changes) or "the same recipe"
    return f"{to} goes on after step {state.step} of {state.stage}, with {under}"


def _under(state: CheckpointState, before: Recipe, recipe: Recipe) -> CheckpointState:
    """Return a checkpoint's state for a changed recipe, with the weights of loss terms that it changes.

    What was measured of a sync of the reference holds for the syncs of the parent alone.
    """
    pending = {**state.pending_facts}
    if recipe.reference != before.reference:
        pending.pop("reference_sync", None)
    own = asdict(LossCoefficients(**state.coefficients).under(before, recipe)) if state.coefficients else {}
    return replace(state, pending_facts=pending, coefficients=own)


def _declare(
    fork: Path,
    run: Path,
    recipe: Recipe,
    state: CheckpointState,
    changes: Sequence[str],
    facts: Mapping[str, Any],
) -> None:
    """Write the recipe of a fork, its parent, and what the steps before were under."""
    parent = {
        "run": os.path.relpath(run, fork),  # both may be moved together
        "stage": state.stage,
        "step": state.step,
        "changes": list(changes),
        "started": False,
    }
    with RunWriter(fork, resume=True) as writer:
        kept = {name: facts[name] for name in BEFORE}
        writer.write_event("forked", stage=state.stage, step=state.step, parent=str(run), before=kept)
        writer.rewrite(to_toml(recipe), {**facts, "recipe": recipe.model_dump(mode="json"), "parent": parent})


def _check_fits(before: Recipe, recipe: Recipe, state: CheckpointState) -> None:
    """Raise if a checkpoint has not the weights of a changed recipe, or if its past would be another."""
    old, new = (flatten(tomllib.loads(to_toml(each))) for each in (before, recipe))
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    past = recipe.stages[: recipe.stages.index(state.stage)] if state.stage in recipe.stages else ()
    for key in changed:
        table = key.partition(".")[0]
        if key in SHAPES or (table == "lora" and key != "lora.dropout"):
            why = "the checkpoint has the weights of the run"
        elif table in past or (
            table == "stages" and recipe.stages[: len(past) + 1] != before.stages[: len(past) + 1]
        ):
            why = f"the checkpoint is of {state.stage}, after it"
        else:
            continue
        raise RecipeError(
            f"a fork cannot change '{key}'",
            got=new.get(key),
            expected=old.get(key),
            remedy=f"{why}: start a new run",
        )
    if recipe.kl.needs_reference and not before.kl.needs_reference and state.step:
        raise RecipeError(
            "a fork within a stage needs a reference, and the stage began without one",
            got=f"step {state.step} of {state.stage}",
            remedy="fork at the start of the stage: --step 0",
        )


def _link_weights(source: str, target: str) -> None:
    """Copy a file; one of weights, which is never written again, by a link where the disk has links."""
    copy = link_or_copy if source.endswith(".safetensors") else shutil.copy2
    copy(source, target)


def start_fork(
    writer: RunWriter, recipe: Recipe, facts: Mapping[str, Any], answers: Mapping[str, Any]
) -> None:
    """Write what a fork trains with into its run.json, which was its parent's, and its tasks' answers."""
    parent = RunReader(writer.run_dir).run_json()["parent"] | {"started": True}
    writer.add_answers(answers)
    writer.rewrite(to_toml(recipe), {**facts, "parent": parent})


def is_unstarted(run: RunReader) -> bool:
    """Return whether a run is a fork that has not trained yet, so that run.json is its parent's."""
    return run.run_json().get("parent", {}).get("started") is False
