"""The preflight recipe: two steps of each stage on few tasks, with every audit on."""

from typing import Any

from truing.config import Recipe, resolve
from truing.types.rollout import Rollout, Task
from truing.utils.rng import seed_of

STEPS_PER_STAGE = 2
"""Steps of each stage; two show whether anything else changes the weights in between."""

PROMPTS, GROUP, DEMONSTRATIONS = 4, 8, 4


def preflight_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe with few steps, in one process, without gates, guard, trackers and alerts."""
    table: dict[str, Any] = recipe.model_dump(exclude_none=True)
    for stage in recipe.stages:
        cfg = table[stage]
        cfg["steps"] = STEPS_PER_STAGE
        limits = {"prompts_per_step": PROMPTS, "group_size": GROUP, "batch_size": DEMONSTRATIONS}
        cfg.update({key: min(cfg[key], limit) for key, limit in limits.items() if key in cfg})
    table["eval"] |= {"tasks": 2, "samples": 1, "base": False, "every": 0}
    table["gates"] |= {"min_trained_tokens": 0, "min_trained_share": 0.0}
    table["kl"] = {key: value for key, value in table["kl"].items() if not key.startswith("cap")}
    table["doctor"] |= {"stop": False, "budget": 1.0}
    table["bootstrap"]["batch_size"] = min(table["bootstrap"]["batch_size"], DEMONSTRATIONS)
    table |= {"guard": False, "checkpoint_every": 0, "track": {}, "alerts": {}}
    if not table["kl"]["coef"]:
        table["reference"] = {}
    # this process alone, with a server of its own; a run proves what ranks add
    table["trainer"] |= {"ranks": 1, "replicate": "auto"}
    table["engine"] |= {"count": 0}
    return resolve(table)


def random_reward(rollout: Rollout, task: Task) -> float:
    """Return a pseudorandom reward, so that rewards differ within groups whatever the policy does."""
    return (0.0, 0.25, 1.0)[seed_of(rollout.rollout_id, task.task_id) % 3]
