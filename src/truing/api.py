"""Training from Python: the same as ``truing train``, with your own functions."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.config import Recipe, load_recipe, resolve
from truing.envs import env_keys, make_env
from truing.envs.base import Env
from truing.envs.tools import Tool
from truing.envs.wrap import equipped, judged
from truing.errors import RecipeError, RecordError, RewardError
from truing.rewards import RewardFn, Rewards
from truing.train.loop import Result, Watch, run


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watch: Watch = lambda kind, facts: None,
) -> Result:
    """Run a recipe.

    Args:
        recipe: a TOML file, a table like one, or a resolved recipe.
        rewards: functions ``(rollout, task) -> float`` in place of the environment's own: a list, each
            with weight 1, or name → (function, weight).
        tools: made with ``truing.tool``; the policy may call them before it answers.
        env: your own environment object; then the recipe needs no ``[env]``.
        out: the run directory; by default a new one under ``runs/``.
        resume: go on with the run in ``out``.
        watch: called with each event as it happens.
    """
    recipe = _recipe(recipe)
    if resume and out is None:
        raise RecordError("--resume needs to know which run", remedy="name its directory with --out")
    if env is None:
        env = environment(recipe)
        recipe = recipe.model_copy(update={"env": {"name": recipe.env["name"]} | env_keys(*_env(recipe))})
    if rewards is not None:
        env = judged(env, _named(rewards))
    if tools is not None:
        env = equipped(env, tools)
    folder = Path(out) if out is not None else _fresh(recipe.name)
    return run(recipe, env, folder, resume=resume, watch=watch)


def environment(recipe: Recipe) -> Env:
    """The environment that a recipe names."""
    return make_env(*_env(recipe))


def _env(recipe: Recipe) -> tuple[str, dict[str, Any]]:
    """The name of the environment, and its own keys."""
    if "name" not in recipe.env:
        raise RecipeError("the recipe names no environment", got=recipe.env, expected='[env] with name = "…"')
    return recipe.env["name"], {key: value for key, value in recipe.env.items() if key != "name"}


def _named(rewards: Sequence[RewardFn] | Rewards) -> Rewards:
    """Rewards by name; functions that share one, or have none, need a mapping."""
    if isinstance(rewards, Mapping):
        return rewards
    names = [getattr(function, "__name__", "") for function in rewards]
    if "" in names or len(set(names)) < len(names):
        raise RewardError(
            "each reward function needs a name of its own",
            got=names,
            remedy='give a mapping instead: {"exact": (function, 1.0), …}',
        )
    return {name: (function, 1.0) for name, function in zip(names, rewards, strict=True)}


def _recipe(given: str | Path | Mapping[str, Any] | Recipe) -> Recipe:
    if isinstance(given, Recipe):
        return given
    return resolve(given) if isinstance(given, Mapping) else load_recipe(given)


def _fresh(name: str) -> Path:
    """A run directory that does not exist yet."""
    stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (stem, *(stem.with_name(f"{stem.name}-{i}") for i in range(2, 100)))
    return next(path for path in candidates if not path.exists())
