"""A recipe made short, to be run before money is spent: two updates of each stage, seen from all sides."""

from typing import Any

from truing.config import Recipe, resolve
from truing.types.rollout import Rollout, Task
from truing.utils.rng import seed_of

STEPS_PER_STAGE = 2
"""Of each stage: between two updates it can be seen who else writes into the weights."""

PROMPTS, GROUP, DEMONSTRATIONS = 4, 8, 4


def preflight_recipe(recipe: Recipe) -> Recipe:
    """The recipe with little of everything, and nothing that would end or change it."""
    table: dict[str, Any] = recipe.model_dump(exclude_none=True)
    for stage in recipe.stages:
        cfg = table[stage]
        cfg["steps"] = STEPS_PER_STAGE
        most = {"prompts_per_step": PROMPTS, "group_size": GROUP, "batch_size": DEMONSTRATIONS}
        cfg.update({key: min(cfg[key], limit) for key, limit in most.items() if key in cfg})
    table["eval"] |= {"tasks": 2, "samples": 1, "base": False, "every": 0}
    table["gates"] |= {"min_trained_tokens": 0, "min_trained_share": 0.0}
    table["kl"] = {key: value for key, value in table["kl"].items() if not key.startswith("cap")}
    table["doctor"] |= {"stop": False, "budget": 1.0}
    table["bootstrap"]["batch_size"] = min(table["bootstrap"]["batch_size"], DEMONSTRATIONS)
    table |= {"guard": False, "checkpoint_every": 0, "track": {}, "alerts": {}}
    if not table["kl"]["coef"]:
        table["reference"] = {}
    return resolve(table)


def random_reward(rollout: Rollout, task: Task) -> float:
    """A reward that means nothing, so that groups have a signal whatever the policy can do yet."""
    return (0.0, 0.25, 1.0)[seed_of(rollout.rollout_id, task.task_id) % 3]
