"""TOML to recipe and back; an error has the parts what, got, expected, remedy."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from truing.config.after_rollback import recipe_after_rollbacks
from truing.config.builtin_recipes import recipe_path
from truing.config.doctor import suppressed_problems
from truing.config.overrides import unknown_key, with_overrides
from truing.config.problems import problems
from truing.config.recipe import Recipe
from truing.config.table_limits import check_limits
from truing.errors import RecipeError
from truing.utils.parse import parse_toml
from truing.utils.regular_files import read_regular_text

EnvProblems = Callable[[Mapping[str, Any]], Sequence[RecipeError]]
"""The problems of ``[env]``, which belongs to the environments."""


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), env_problems: EnvProblems = lambda env: ()
) -> Recipe:
    """Read a recipe and apply ``key=value`` overrides, which are TOML values at dotted keys.

    Args:
        path: a TOML file, or the name of a built-in recipe.
        overrides: in order; a later one wins.
        env_problems: as of ``resolve``.
    """
    return resolve(with_overrides(read_table(path), overrides), env_problems)


def read_table(path: str | Path) -> dict[str, Any]:
    """Return the table of a recipe's file, unvalidated; the path may be the name of a built-in recipe.

    A recipe without a name has that of its file.
    """
    path = recipe_path(path)
    try:
        table = parse_toml(read_regular_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError("the recipe cannot be read", got=error, expected="a TOML file") from error
    except ValueError as error:
        raise RecipeError(
            f"{path} is not TOML",
            got=error,
            expected='key = value, with text in quotes: name = "mine", steps = 20',
        ) from error
    check_limits(table)  # before the overrides, which copy it
    return {"name": path.stem} | table


def resolve(table: Mapping[str, Any], env_problems: EnvProblems = lambda env: ()) -> Recipe:
    """Validate a recipe given as a table.

    Raises:
        RecipeError: With all problems of the table, and, if it has some, with those of ``[env]``.
    """
    check_limits(table)
    table = {"model": {}} | dict(table)  # then the key that is missing is model.name
    stages = table.get("stages", ())
    of_stages = partial(unknown_key, stages=stages if isinstance(stages, list | tuple) else ())
    found = [*problems(Recipe, table, of_stages), *_suppressed_problems(table)]
    if found:
        env = table.get("env")
        raise RecipeError.joined([*found, *(env_problems(env) if isinstance(env, Mapping) else ())])
    recipe = Recipe.model_validate(table)
    for stage in recipe.stages:
        if recipe.guard:  # an invalid change fails now, not at the rollback
            recipe_after_rollbacks(recipe, stage, recipe.guard.rollbacks)
    return recipe


def _suppressed_problems(table: Mapping[str, Any]) -> Iterator[RecipeError]:
    """Yield the problems of ``doctor.suppress``, unless it is not a table of texts."""
    doctor = table.get("doctor")
    suppress = doctor.get("suppress") if isinstance(doctor, Mapping) else None
    if isinstance(suppress, Mapping) and all(isinstance(each, str) for each in suppress.values()):
        yield from suppressed_problems(suppress)


def to_toml(recipe: Recipe) -> str:
    """Return the resolved recipe as TOML, without keys that are None, since TOML has no null."""
    return tomli_w.dumps(json.loads(recipe.model_dump_json(exclude_none=True)))
