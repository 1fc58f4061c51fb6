"""TOML to recipe and back; an error has the parts what, got, expected, remedy."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from truing.config.after_rollback import recipe_after_rollbacks
from truing.config.builtin_recipes import recipe_path
from truing.config.doctor import check_suppressed
from truing.config.other_trainers import EQUIVALENT_KEYS
from truing.config.overrides import unknown_key, with_overrides
from truing.config.recipe import Recipe
from truing.config.table_limits import check_limits
from truing.errors import RecipeError
from truing.utils.parse import parse_toml
from truing.utils.regular_files import read_regular_text

EXPECTED_BY_ERROR = {
    "dict_type": "a table",
    "model_type": "a table: set its keys one by one, as in lora.rank=8",
    "string_type": "text in quotes",
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
    "tuple_type": "a list",
}
"""The expected value, by pydantic's kind of error."""


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply ``key=value`` overrides, which are TOML values at dotted keys.

    Args:
        path: a TOML file, or the name of a built-in recipe.
        overrides: in order; a later one wins.
    """
    return resolve(with_overrides(read_table(path), overrides))


def read_table(path: str | Path) -> dict[str, Any]:
    """Return the table of a recipe's file, unvalidated; the path may be the name of a built-in recipe."""
    path = recipe_path(path)
    try:
        table = parse_toml(read_regular_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError("the recipe cannot be read", got=error, expected="a TOML file") from error
    except ValueError as error:
        raise RecipeError(
            f"{path} is not TOML", got=error, remedy="see docs/recipes.md for an example"
        ) from error
    check_limits(table)  # before the overrides, which copy it
    return table


def resolve(table: Mapping[str, Any]) -> Recipe:
    """Validate a recipe given as a table."""
    check_limits(table)
    try:
        recipe = Recipe.model_validate(table)
        _check_stages(recipe)
        check_suppressed(recipe.doctor.suppress)
        for stage in recipe.stages:
            if recipe.guard:  # an invalid change fails now, not at the rollback
                recipe_after_rollbacks(recipe, stage, recipe.guard.rollbacks)
    except ValidationError as error:
        raise _explain(error) from None  # pydantic's text repeats the same in its own terms
    return recipe


def _check_stages(recipe: Recipe) -> None:
    """Raise where a stage is named twice, or has no table."""
    if len(set(recipe.stages)) < len(recipe.stages):
        raise RecipeError("stages names a stage twice", got=recipe.stages, expected="each stage once")
    for stage in recipe.stages:
        if recipe.stage(stage) is None:
            raise RecipeError(
                f"stage {stage!r} has no table", expected=f"[{stage}] with steps and learning_rate"
            )


def to_toml(recipe: Recipe) -> str:
    """Return the resolved recipe as TOML, without keys that are None, since TOML has no null."""
    return tomli_w.dumps(json.loads(recipe.model_dump_json(exclude_none=True)))


OPTION_OF_UNION = r"Config\b|literal\[|^constrained-"
"""Matches a part of pydantic's location that is no key."""


def _explain(error: ValidationError) -> RecipeError:
    """Return one problem as a RecipeError; an unknown key first, since it may be a misspelled one."""
    problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    # pydantic includes the options of a union in the location
    location = tuple(part for part in problem["loc"] if not re.search(OPTION_OF_UNION, str(part)))
    key = ".".join(map(str, location))
    if problem["type"] == "extra_forbidden" and (equivalent := EQUIVALENT_KEYS.get(str(location[-1]))):
        return RecipeError(
            f"recipe key {key!r} belongs to another trainer",
            got=problem["input"],
            expected=equivalent.key,
            remedy=equivalent.convention,
        )
    if problem["type"] == "extra_forbidden":
        return unknown_key(key, problem["input"])
    if problem["type"] == "missing":
        return RecipeError(
            f"the recipe lacks {key!r}", remedy=f"add {key}, or override it on the command line"
        )
    if problem["type"] == "value_error" and isinstance(problem["input"], Mapping):
        # keys that contradict each other: the message names them
        return RecipeError((f"[{key}]: " if key else "") + _expected_text(problem))
    rows = key == "env" and isinstance(problem["input"], list | tuple)
    return RecipeError(
        f"recipe key {key!r} has an invalid value",
        got=problem["input"] if not rows else f"a list of {len(problem['input'])}",
        expected=_expected_text(problem),
        remedy='write rows to a file: [env] name = "dataset", data = "rows.jsonl"' if rows else "",
    )


def _expected_text(problem: ErrorDetails) -> str:
    """Return the expected value of a key, in the terms of docs/recipes.md instead of pydantic's."""
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    for kind, expected in EXPECTED_BY_ERROR.items():
        if kind in problem["type"]:
            return expected
    return message
