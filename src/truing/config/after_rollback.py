"""The recipe of a stage after rollbacks."""

from typing import Any

from truing.config.overrides import apply_override, unknown_key
from truing.config.problems import validated
from truing.config.recipe import Recipe
from truing.errors import RecipeError

CHANGEABLE_TABLES = ("kl", "gates", "entropy", "correction")
UNCHANGEABLE_KEYS = ("gates.equal_groups", "gates.max_resample")
CHANGEABLE_STAGE_KEYS = ("clip_low", "clip_high", "inner_epochs", "minibatches")
CHANGEABLE_KEYS = ("episode.mask", "optimizer.max_grad_norm")
"""Keys that may change within a stage: none decides which tasks are sampled, or memory use."""


def recipe_after_rollbacks(recipe: Recipe, stage: str, rollbacks: int) -> Recipe:
    """Return a stage's recipe after ``rollbacks``: ``guard.change``, and smaller learning rates."""
    if not recipe.guard or not rollbacks:
        return recipe
    table: dict[str, Any] = recipe.model_dump(exclude_none=True)
    for override in recipe.guard.change:
        _check_allowed(override, recipe)
        apply_override(table, override)
    factor = recipe.guard.learning_rate**rollbacks
    for rate in ("learning_rate", "value_learning_rate"):
        if rate in table[stage]:
            table[stage][rate] *= factor
    changed = validated(Recipe, table, unknown_key)
    if changed.kl.needs_reference and not recipe.kl.needs_reference:
        raise RecipeError(
            "guard.change needs a reference, and the stage began without one",
            got=list(recipe.guard.change),
            remedy="set kl.coef or kl.cap in the recipe; guard.change may then raise or lower it",
        )
    return changed


def _check_allowed(override: str, recipe: Recipe) -> None:
    """Raise where a key cannot change within a stage."""
    key = override.partition("=")[0]
    part, _, name = key.partition(".")
    of_table = bool(name) and part in CHANGEABLE_TABLES and key not in UNCHANGEABLE_KEYS
    if of_table or key in CHANGEABLE_KEYS or (part in recipe.stages and name in CHANGEABLE_STAGE_KEYS):
        return
    raise RecipeError(
        f"guard.change cannot change {key!r} within a stage",
        got=override,
        expected=", ".join(
            (
                *(f"{table}.*" for table in CHANGEABLE_TABLES),
                *CHANGEABLE_KEYS,
                *(f"STAGE.{k}" for k in CHANGEABLE_STAGE_KEYS),
            )
        ),
        remedy="guard.learning_rate lowers the learning rates",
    )
