"""Whether a step samples the tasks that the recipe's seed gives it."""

from collections.abc import Mapping, Sequence
from typing import Any

from truing.algos import StepConfig
from truing.config import PolicyStage, Recipe
from truing.config.stages import SftConfig
from truing.doctor.oracle.task_order import expected_tasks
from truing.measurements.measurement import Measurement
from truing.types.batch_facts import Tasks
from truing.types.facts import Facts
from truing.types.rollout import Rollout, Task
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.status import Status


class TaskOrder(Measurement):
    """The tasks of a step, and those that the recipe's seed gives it; the rollouts of each group."""

    facts = ("tasks",)
    cost = "a permutation of the tasks' indices"

    def after_step(self) -> Facts:
        """Return how many differ, and the first difference."""
        step = self.step
        key, rollouts = (step.recipe.seed, step.stage, step.step), step.samples.rollouts
        fact = task_fact(step.sampler.train_tasks, step.learner.setting, key, rollouts)
        if other := [each for each in rollouts.values() if each.sampling_params != self._declared(each)]:
            fact["params"], fact["drawn_with"] = len(other), repr(other[0].sampling_params)
            fact["declared"] = repr(self._declared(other[0]))
        return {"tasks": fact}

    def _declared(self, rollout: Rollout) -> SamplingParams:
        """Return the declared sampling parameters of a rollout; nothing samples demonstrations."""
        step = self.step
        beside = f"{step.recipe.seed}/{step.stage}/bootstrap/"
        if isinstance(step.learner.setting.stage, SftConfig) or rollout.group_id.startswith(beside):
            return RAW
        return declared_params(step.recipe, step.sampler.sampling_params.stop_ids)


def declared_params(recipe: Recipe, stop_ids: tuple[int, ...], **changed: Any) -> SamplingParams:
    """Return the sampling parameters that a recipe declares, with some changed."""
    return SamplingParams(**{**recipe.sampling.model_dump(), **changed}, stop_ids=stop_ids)


def task_fact(
    train_tasks: Sequence[Task],
    setting: StepConfig,
    key: tuple[int, str, int],
    rollouts: Mapping[str, Rollout],
) -> Tasks:
    """Compare the tasks of a step with the declared ones, and the rollouts of their groups.

    ``key``: the recipe's seed, the stage, and the step.

    By the index in the id of each group: those that the gate ``equal_groups`` sampled in addition have other
    ids. A rollout's id ends in its index within the group. Demonstrations beside rollouts have an order of
    their own, and come last.
    """
    cfg, stage = setting.stage, key[1]
    supervised = isinstance(cfg, SftConfig)
    groups = _declared(key, stage, cfg.batch_size if supervised else cfg.prompts_per_step, train_tasks)
    beside: dict[str, str] = {}
    if isinstance(cfg, PolicyStage) and setting.bootstrap.steps:
        beside = _declared(key, f"{stage}/bootstrap", setting.bootstrap.batch_size, train_tasks)
    task_of_group = {rollout.group_id: rollout.task.task_id for rollout in rollouts.values()}
    declared = list((groups | beside).items())
    got = [task_of_group.get(name, "none") for name, _ in declared]
    other = [index for index, (_, task) in enumerate(declared) if got[index] != task]
    fact: Tasks = {"asked": len(declared), "other": len(other)}
    if other:
        fact["at"], fact["got"], fact["expected"] = other[0], got[other[0]], declared[other[0]][1]
    if not supervised:
        sampled = [each for each in rollouts.values() if each.group_id not in beside]
        fact["sampled"] = len(sampled)
        fact["graded"] = sum(each.status is not Status.ERROR for each in sampled)
    size = 1 if supervised else cfg.group_size
    if incomplete := _incomplete(list(groups), rollouts, size):
        first = next(iter(incomplete))
        fact["incomplete"], fact["group"] = len(incomplete), first
        fact["rollouts"], fact["size"] = incomplete[first], size
    return fact


def _declared(
    key: tuple[int, str, int], name: str, count: int, train_tasks: Sequence[Task]
) -> dict[str, str]:
    """Return the tasks of a step in one order, ``name``, by the ids of their groups."""
    seed, _, step = key
    indices = expected_tasks(seed, name, step, count, len(train_tasks))
    return {f"{seed}/{name}/{step}/{n}": train_tasks[index].task_id for n, index in enumerate(indices)}


def _incomplete(groups: Sequence[str], rollouts: Mapping[str, Rollout], size: int) -> dict[str, list[int]]:
    """Return the indices of the rollouts of each group that has others than 0 to ``size`` − 1."""
    indices: dict[str, list[int]] = {name: [] for name in groups}
    for rollout in rollouts.values():
        if rollout.group_id in indices:
            indices[rollout.group_id].append(int(rollout.rollout_id.rpartition("/")[2]))
    return {
        name: sorted(found) for name, found in indices.items() if found and sorted(found) != [*range(size)]
    }
