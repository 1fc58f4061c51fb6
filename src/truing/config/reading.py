"""From TOML to a recipe and back; what is wrong is told as what, got, expected, remedy."""

import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from truing.config.recipe import Recipe
from truing.config.reports import KEYS
from truing.errors import RecipeError

KINDS = {
    "model_type": "a table: set its keys one by one, as in lora.rank=8",
    "string_type": "text in quotes",
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
}
"""What a value should be, by the kinds of error that pydantic has words of its own for."""


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a TOML recipe and apply ``key=value`` overrides, which are TOML values at dotted keys."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError("the recipe cannot be read", got=error, expected="a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(
            f"{path} is not TOML", got=error, remedy="see docs/recipes.md for an example"
        ) from error
    for override in overrides:
        _override(table, override)
    return resolve(table)


def resolve(table: Mapping[str, Any]) -> Recipe:
    """Validate a recipe given as a table."""
    try:
        recipe = Recipe.model_validate(table)
    except ValidationError as error:
        raise _explain(error) from error
    if len(set(recipe.stages)) < len(recipe.stages):
        raise RecipeError("stages names a stage twice", got=recipe.stages, expected="each stage once")
    for stage in recipe.stages:
        if recipe.stage(stage) is None:
            raise RecipeError(
                f"stage {stage!r} has no table", expected=f"[{stage}] with steps and learning_rate"
            )
    return recipe


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe as TOML; what is None is left out, as TOML has no null."""
    return tomli_w.dumps(json.loads(recipe.model_dump_json(exclude_none=True)))


def _override(table: dict[str, Any], override: str) -> None:
    """Set one ``a.b=value`` in place; a value that is no TOML is taken as a string."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError("an override is not key=value", got=override, expected="e.g. grpo.steps=20")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, last = key.split(".")
    for parent in parents:
        child = table.setdefault(parent, {})
        if not isinstance(child, dict):
            child = table[parent] = {}
        table = child
    table[last] = value


def _explain(error: ValidationError) -> RecipeError:
    """One problem as what, got, expected, remedy; an unknown key first, for it may be a misspelt one."""
    problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    place = tuple(part for part in problem["loc"] if part not in ("LoraConfig", "literal[False]"))
    key = ".".join(map(str, place))
    if problem["type"] == "extra_forbidden" and (answer := KEYS.get(str(place[-1]))):
        return RecipeError(
            f"recipe key {key!r} is another trainer's",
            got=problem["input"],
            expected=answer.key,
            remedy=answer.convention,
        )
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, list(dotted_keys()), n=1, cutoff=0.4)
        remedy = f"did you mean {near[0]}?" if near else "see docs/recipes.md for all keys"
        return RecipeError(f"unknown recipe key {key!r}", got=problem["input"], remedy=remedy)
    if problem["type"] == "missing":
        return RecipeError(
            f"the recipe lacks {key!r}", remedy=f"add {key}, or override it on the command line"
        )
    return RecipeError(
        f"recipe key {key!r} has a value that cannot be",
        got=problem["input"],
        expected=_expected(problem),
    )


def _expected(problem: ErrorDetails) -> str:
    """What a key takes, in the words of docs/recipes.md where pydantic speaks of its own types."""
    said = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    for kind, words in KINDS.items():
        if kind in problem["type"]:
            return words
    return said


def dotted_keys(part: type[BaseModel] = Recipe, prefix: str = "") -> Iterator[str]:
    """All keys of a recipe, less those of its environment."""
    for name, item in part.model_fields.items():
        yield prefix + name
        for option in (item.annotation, *get_args(item.annotation)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                yield from dotted_keys(option, f"{prefix}{name}.")
