"""Grades evaluations by a second function, which never pays: it shows what a policy learns beside it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from truing.config import Recipe
from truing.envs.imported import import_object
from truing.envs.wrappers import with_rewards
from truing.errors import RecipeError
from truing.rewards import RewardFn
from truing.trainer.session import Session
from truing.types.rollout import RolloutGroup
from truing.types.status import Status


def second_grader(recipe: Recipe) -> RewardFn | None:
    """Return the function that ``eval.grader`` names; None without one.

    Raises:
        RecipeError: It cannot be imported, or is no function.
    """
    name = recipe.eval.grader
    if name is None:
        return None
    function = import_object(name, "grader")
    if not callable(function):
        raise RecipeError(
            "recipe key 'eval.grader' names no function",
            got=f"{name} is a {type(function).__name__}",
            expected="a function (rollout, task) -> float",
        )
    return cast("RewardFn", function)  # what it returns is checked at each call


def second_grades(session: Session, groups: Sequence[RolloutGroup]) -> dict[str, list[float]]:
    """Return the second grader's reward of each graded rollout, by task; empty without one.

    Raises:
        RewardError: It fails, or its result is not a finite number.
    """
    grader = second_grader(session.recipe)
    if grader is None:
        return {}
    sampler = session.sampler
    context = sampler.episode_context(sampler.sampling_params)
    second = replace(context, env=with_rewards(sampler.env, {"grader": (grader, 1.0)}), workers=None)

    def grades() -> dict[str, list[float]]:
        with second.running_workers() as workers:
            return {
                group.task.task_id: [
                    workers.grade(rollout).reward
                    for rollout in group.rollouts
                    if rollout.status is not Status.ERROR
                ]
                for group in groups
            }

    return session.policy.ranks.on_first("the second grader", grades)
