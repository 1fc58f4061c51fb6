"""How many tasks a run evaluates, if its recipe leaves that to the data."""

from collections.abc import Sequence

from truing.config import Recipe
from truing.config.sections import DEFAULT_EVAL_TASKS as DEFAULT
from truing.envs.base import Env
from truing.errors import DataError


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
