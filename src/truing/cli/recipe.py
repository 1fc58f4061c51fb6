"""A recipe of the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.config import Recipe, load_recipe
from truing.errors import RecipeError


def recipe_of(path: str | Path, overrides: Sequence[str]) -> Recipe:
    """Return a recipe with its overrides, or raise one error with the problems of all its tables."""
    return load_recipe(path, overrides, _env_problems)


def _env_problems(env: Mapping[str, Any]) -> Sequence[RecipeError]:
    from truing.envs import env_problems  # takes seconds, and only an error needs it

    return env_problems(env)
