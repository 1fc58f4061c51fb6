"""Environments: one task family per file, and one table of them. docs/tasks.md explains how to add one."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from truing.config import dotted_keys
from truing.envs.adapters.mcp import Mcp
from truing.envs.adapters.openenv import OpenEnv
from truing.envs.adapters.verifiers import Verifiers
from truing.envs.agentdojo import AgentDojo
from truing.envs.arithmetic.env import Arithmetic
from truing.envs.base import Env, Split, checked_tasks
from truing.envs.bfcl import BFCL
from truing.envs.countdown import Countdown
from truing.envs.dataset import Dataset
from truing.envs.dual.env import Dual
from truing.envs.env_arguments import env_arguments, record_env_arguments
from truing.envs.gsm8k import Gsm8k
from truing.envs.imported import import_object
from truing.envs.musique.env import Musique
from truing.envs.reasoning_gym import ReasoningGym
from truing.envs.taubench import TauBench
from truing.envs.workbench import WorkBench
from truing.envs.workspace import Workspace
from truing.errors import RecipeError
from truing.utils.format import did_you_mean

_UNION_OPTION = re.compile(r"str|int|float|bool|\w+Config|(tuple|list|dict|literal)\[.*")
"""A part of a location that names an option of a union and not a key."""

ENVS: dict[str, type] = {
    "dataset": Dataset,
    "arithmetic": Arithmetic,
    "countdown": Countdown,
    "reasoning_gym": ReasoningGym,
    "mcp": Mcp,
    "verifiers": Verifiers,
    "openenv": OpenEnv,
    "gsm8k": Gsm8k,
    "musique": Musique,
    "dual": Dual,
    "workbench": WorkBench,
    "taubench": TauBench,
    "agentdojo": AgentDojo,
    "bfcl": BFCL,
    "workspace": Workspace,
}

__all__ = ["ENVS", "Env", "Split", "checked_tasks", "env_arguments", "env_keys", "make_env"]


def make_env(name: str, config: Mapping[str, Any]) -> Env:
    """Return the environment of that name, built from its recipe keys (``[env]`` without ``name``).

    Raises:
        RecipeError: The environment, key or value is unknown; the error names the nearest valid one.
        DataError: The data that the environment reads is missing or invalid.
    """
    env = _class(name)(_validated(name, config))
    record_env_arguments(env, name, config)
    return env


def env_keys(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all keys of ``[env]``, with the environment's defaults for missing ones."""
    return _validated(name, config).model_dump(mode="json", exclude_none=True)


def _validated(name: str, config: Mapping[str, Any]) -> BaseModel:
    """Return the keys of an environment as its Config."""
    valid = _class(name).Config
    try:
        return valid.model_validate(dict(config))
    except ValidationError as error:
        raise _explain(error, valid) from None  # pydantic's text repeats the same in its own terms


def _class(name: str) -> type:
    """Return the class of an environment: a built-in one, or ``module:Class`` from the working directory."""
    if name in ENVS:
        return ENVS[name]
    if ":" not in name:
        raise RecipeError(
            f"unknown environment {name!r}",
            expected=f"one of {', '.join(ENVS)}, or module:Class",
            remedy=did_you_mean(name, ENVS),
        )
    cls = import_object(name, "environment")
    if not hasattr(cls, "Config"):
        raise RecipeError(
            f"the environment {name!r} does not declare its recipe keys",
            got=cls,
            expected="a class with a pydantic model named Config, which its constructor takes",
        )
    return cls


def _explain(error: ValidationError, config: type[BaseModel]) -> RecipeError:
    """Return one problem as what, got, expected, remedy; unknown keys first: they may be misspelled."""
    problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    # pydantic includes the options of a union in the location
    location = [str(part) for part in problem["loc"] if not _UNION_OPTION.fullmatch(str(part))]
    key = ".".join(["env", *location])
    if problem["type"] == "extra_forbidden":
        nested = f"{location[0]}." if len(location) > 1 else ""
        names = [each.removeprefix(nested) for each in dotted_keys(config) if each.startswith(nested)]
        valid = [name for name in names if "." not in name]
        return RecipeError(
            f"unknown recipe key {key!r}",
            got=problem["input"],
            expected=f"one of {', '.join(valid)}",
            remedy=did_you_mean(location[-1], valid),
        )
    if problem["type"] == "missing":
        return RecipeError(f"the recipe lacks {key!r}", remedy=f"add it to [{key.rpartition('.')[0]}]")
    expected = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if problem["type"] == "value_error" and isinstance(problem["input"], Mapping):
        return RecipeError(f"[{key}]: {expected}")  # keys that contradict each other: the message names them
    return RecipeError(
        f"recipe key {key!r} has a value that cannot be", got=problem["input"], expected=expected
    )
