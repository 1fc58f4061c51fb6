"""Environments: one task family per file, and one table of them. docs/tasks.md explains how to add one."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel

from truing.config import Recipe, problems, table_at, validated
from truing.envs.adapters.mcp import Mcp
from truing.envs.adapters.openenv import OpenEnv
from truing.envs.adapters.verifiers import Verifiers
from truing.envs.adapters.verifiers_program import VerifiersProgram
from truing.envs.arithmetic.env import Arithmetic
from truing.envs.base import Env, Split, checked_tasks
from truing.envs.countdown import Countdown
from truing.envs.dataset import Dataset
from truing.envs.env_arguments import env_arguments, record_env_arguments
from truing.envs.gsm8k import Gsm8k
from truing.envs.harbor import Harbor
from truing.envs.imported import import_object
from truing.envs.program import ProgramDataset
from truing.envs.reasoning_gym import ReasoningGym
from truing.envs.workspace import Workspace
from truing.errors import RecipeError
from truing.utils.format import did_you_mean, nearest_name
from truing.utils.repository import in_clone

ENVS: dict[str, type] = {
    "dataset": Dataset,
    "program": ProgramDataset,
    "harbor": Harbor,
    "arithmetic": Arithmetic,
    "countdown": Countdown,
    "reasoning_gym": ReasoningGym,
    "mcp": Mcp,
    "verifiers": Verifiers,
    "verifiers_program": VerifiersProgram,
    "openenv": OpenEnv,
    "gsm8k": Gsm8k,
    "workspace": Workspace,
}

IN_RECIPES: dict[str, str] = {
    "musique": "recipes/musique/env.py:Musique",
    "dual": "recipes/dual/env.py:Dual",
    "workbench": "recipes/workbench/env.py:WorkBench",
    "taubench": "recipes/taubench/env.py:TauBench",
    "agentdojo": "recipes/agentdojo/env.py:AgentDojo",
    "bfcl": "recipes/bfcl/env.py:BFCL",
}
"""Environments with data of their own, each in a folder of ``recipes/``: in a clone they have these names."""

__all__ = [
    "ENVS",
    "IN_RECIPES",
    "Env",
    "Split",
    "checked_tasks",
    "env_arguments",
    "env_from_recipe",
    "env_keys",
    "env_problems",
    "make_env",
    "named_env",
]


def make_env(name: str, config: Mapping[str, Any]) -> Env:
    """Return the environment of that name, built from its recipe keys (``[env]`` without ``name``).

    Raises:
        RecipeError: The environment, key or value is unknown; the error names the nearest valid one.
        DataError: The data that the environment reads is missing or invalid.
    """
    env = _class(name)(_validated(name, config))
    record_env_arguments(env, name, config)
    return env


def env_from_recipe(recipe: Recipe) -> Env:
    """Return the environment of a recipe."""
    return make_env(*named_env(recipe))


def named_env(recipe: Recipe) -> tuple[str, dict[str, Any]]:
    """Return the name of a recipe's environment, and its keys."""
    if "name" not in recipe.env:
        raise RecipeError(
            "the recipe names no environment",
            got=recipe.env,
            expected='[env] with name = "…"',
            remedy="add [env], or pass your own object in Python: truing.train, check and evaluate take env=",
        )
    return recipe.env["name"], {key: value for key, value in recipe.env.items() if key != "name"}


def env_keys(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all keys of ``[env]``, with the environment's defaults for missing ones."""
    return _validated(name, config).model_dump(mode="json", exclude_none=True)


def env_problems(table: Mapping[str, Any]) -> list[RecipeError]:
    """Return the problems of the keys of ``[env]``; none without a name, since Python may pass an object."""
    keys = dict(table)
    name = keys.pop("name", None)
    if name is None:
        return []
    try:
        config = _class(name).Config
    except RecipeError as error:
        return [error]
    return problems(config, keys, partial(_unknown_key, config), "env")


def _validated(name: str, config: Mapping[str, Any]) -> BaseModel:
    """Return the keys of an environment as its Config."""
    valid = _class(name).Config
    return validated(valid, config, partial(_unknown_key, valid), "env")


def _class(name: str) -> type:
    """Return the class of an environment: a built-in one, ``module:Class``, or ``path.py:Class``."""
    if name in ENVS:
        return ENVS[name]
    if name in IN_RECIPES and not in_clone():
        raise RecipeError(
            f"the environment {name!r} is in a clone of Truing's repository",
            got="an installed package, which has no recipes/",
            expected="its folder",
            remedy=f'copy the folder from the repository, and set env.name = "{IN_RECIPES[name]}"',
        )
    if ":" not in name and name not in IN_RECIPES:
        raise RecipeError(
            f"unknown environment {name!r}",
            expected=f"one of {', '.join([*ENVS, *IN_RECIPES])}, module:Class, or path.py:Class",
            remedy=did_you_mean(name, [*ENVS, *IN_RECIPES]),
        )
    cls = import_object(IN_RECIPES.get(name, name), "environment")
    if not hasattr(cls, "Config"):
        raise RecipeError(
            f"the environment {name!r} does not declare its recipe keys",
            got=cls,
            expected="a class with a pydantic model named Config, which its constructor takes",
        )
    return cls


def _unknown_key(config: type[BaseModel], key: str, got: object) -> RecipeError:
    """Return the error for a key that an environment does not have."""
    *tables, name = key.removeprefix("env.").split(".")
    table = table_at(config, tuple(tables))
    valid = list(table.model_fields) if table else []
    nearest = nearest_name(name, valid)
    owners = [each for each, env in ENVS.items() if not tables and name in env.Config.model_fields]
    remedy = f"did you mean {'.'.join(('env', *tables, nearest))}?" if nearest else ""
    if owners:  # the same name says more than a similar one
        remedy = f"{key} is a key of the environments {', '.join(owners)}: set env.name to one of them"
    return RecipeError(
        f"unknown recipe key {key!r}", got=got, expected=f"one of {', '.join(valid)}", remedy=remedy
    )
