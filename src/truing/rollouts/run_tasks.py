"""The tasks of a run: how many it evaluates, and whether the environment has them."""

from collections.abc import Mapping, Sequence

from truing.config import Recipe
from truing.config.sections import DEFAULT_EVAL_TASKS as DEFAULT
from truing.envs.base import Env, Split, checked_tasks
from truing.errors import DataError
from truing.types.rollout import Task


def with_eval_tasks(recipe: Recipe, env: Env) -> tuple[Recipe, Sequence[str]]:
    """Return the recipe with its number of evaluation tasks, and a note if the data have fewer than DEFAULT.

    Raises:
        DataError: The recipe gives no number, and the environment has too few tasks for an interval.
    """
    if recipe.eval.tasks is not None:
        return recipe, ()
    there = len(env.tasks("eval"))
    if there < 2:
        raise DataError(
            "the environment has too few evaluation tasks",
            got="; ".join((str(there), *env.notes)),
            expected="at least 2, since an interval needs two",
            remedy="add data, such as env.eval_data of own rows, or set eval.tasks = 0 to evaluate nothing",
        )
    tasks = min(there, DEFAULT)
    note = (
        f"the evaluation uses all {there} tasks for evaluation; by default {DEFAULT}, where there are as many"
    )
    filled = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"tasks": tasks})})
    return filled, (note,) if there < DEFAULT else ()


def loss_count(recipe: Recipe) -> int:
    """Return of how many evaluation tasks SFT measures the loss on demonstrations."""
    return recipe.stage("sft").eval_tasks if "sft" in recipe.stages else 0


def run_tasks(recipe: Recipe, env: Env) -> Mapping[Split, Sequence[Task]]:
    """Return both splits of an environment, checked, with at least as many tasks as the recipe evaluates."""
    splits = checked_tasks(env, evaluated=_needed(recipe)[0] > 0)
    check_eval_tasks(recipe, env)
    return splits


def check_eval_tasks(recipe: Recipe, env: Env) -> None:
    """Raise DataError if the recipe evaluates more tasks than the environment has."""
    there, (needed, key) = len(env.tasks("eval")), _needed(recipe)
    if there < needed:
        raise DataError(
            "the environment has too few evaluation tasks",
            got="; ".join((str(there), *env.notes)),
            expected=f"at least {key} = {needed}",
            remedy=f"add data, or lower {key}",
        )


def _needed(recipe: Recipe) -> tuple[int, str]:
    """Return the most evaluation tasks that a recipe asks for, and the key that does."""
    return max((recipe.eval.tasks or 0, "eval.tasks"), (loss_count(recipe), "sft.eval_tasks"))
