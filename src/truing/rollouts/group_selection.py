"""Selection of the groups that a step trains on: groups with equal rewards may be dropped or resampled."""

from collections.abc import Sequence
from typing import NamedTuple

from truing.algos import StepConfig
from truing.config import PolicyStage
from truing.rollouts.sampler import Sampler
from truing.rollouts.turn_sources import force_rate
from truing.types.rollout import RolloutGroup, Task
from truing.types.status import Status
from truing.utils.rng import permutation


class SelectedGroups(NamedTuple):
    """The groups to train on, and those dropped because all their rewards are equal."""

    groups: list[RolloutGroup]
    dropped: list[RolloutGroup]


def collect_groups(sampler: Sampler, setting: StepConfig, stage: str, step: int) -> SelectedGroups:
    """Collect the groups of step ``step`` and select them by ``gates.equal_groups``."""
    cfg = setting.stage
    action = setting.gates.equal_groups if isinstance(cfg, PolicyStage) else "count"
    tasks = sampler.tasks_of_step(stage, step, cfg.prompts_per_step)
    groups = _collect(sampler, tasks, setting, stage, step)
    dropped: list[RolloutGroup] = []
    if action == "resample":
        for attempt in range(1, setting.gates.max_resample + 1):
            equal = [i for i, group in enumerate(groups) if has_equal_rewards(group)]
            tried_ids = {group.task.task_id for group in groups + dropped}
            new_tasks = _untried_tasks(sampler, tried_ids, len(equal), (stage, step, "resample", attempt))
            if not new_tasks:
                break
            new_groups = _collect(sampler, new_tasks, setting, stage, step, "resample", attempt)
            for i, group in zip(equal, new_groups, strict=False):
                dropped.append(groups[i])
                groups[i] = group
    if action == "drop" and not all(has_equal_rewards(group) for group in groups):
        dropped = [group for group in groups if has_equal_rewards(group)]
        groups = [group for group in groups if not has_equal_rewards(group)]
    return SelectedGroups(groups, dropped)


def has_equal_rewards(group: RolloutGroup) -> bool:
    """Return whether all rewards of a group are equal, so that advantages are 0; failed rollouts aside."""
    rewards = [rollout.reward for rollout in group.rollouts if rollout.status is not Status.ERROR]
    return len(rewards) > 1 and min(rewards) == max(rewards)


def _collect(
    sampler: Sampler, tasks: Sequence[Task], setting: StepConfig, stage: str, step: int, *occasion: object
) -> list[RolloutGroup]:
    """Collect a group of rollouts for each task."""
    rate = force_rate(sampler.episode, step)
    size = setting.stage.group_size
    return sampler.collect_rollouts(tasks, size, sampler.sampling_params, (stage, step, *occasion), rate)


def _untried_tasks(sampler: Sampler, tried_ids: set[str], count: int, key: tuple[object, ...]) -> list[Task]:
    """Return up to ``count`` training tasks that the step has not tried."""
    order = permutation(len(sampler.train_tasks), sampler.seed, *key)
    tasks = (sampler.train_tasks[i] for i in order)
    return [task for task in tasks if task.task_id not in tried_ids][:count]
