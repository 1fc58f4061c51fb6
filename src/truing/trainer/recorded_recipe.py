"""The recipe of a run that is continued, beside the one that it was started with."""

import datetime
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from truing.analysis.compare import flatten
from truing.config import Recipe, resolve, to_toml
from truing.errors import RecordError
from truing.record import RunReader


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
