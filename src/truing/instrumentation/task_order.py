"""The fact ``tasks``: whether an update samples the tasks that the recipe's seed gives it."""

from collections.abc import Mapping
from typing import Any

from truing.algos import UpdateConfig
from truing.config.stages import SftConfig
from truing.doctor.oracle.task_order import expected_tasks
from truing.rollouts.sampler import Sampler
from truing.types.rollout import Rollout


def task_order_fact(
    sampler: Sampler, setting: UpdateConfig, stage: str, step: int, rollouts: Mapping[str, Rollout]
) -> dict[str, Any]:
    """Compare the tasks of an update with the declared ones, by the index in the id of each group.

    Groups that the gate ``equal_groups`` sampled in addition, and demonstrations beside rollouts, have other
    ids.
    """
    cfg, seed = setting.stage, sampler.seed
    count = cfg.batch_size if isinstance(cfg, SftConfig) else cfg.prompts_per_step
    task_of_group = {rollout.group_id: rollout.task.task_id for rollout in rollouts.values()}
    got = [task_of_group.get(f"{seed}/{stage}/{step}/{index}", "none") for index in range(count)]
    indices = expected_tasks(seed, stage, step, count, len(sampler.train_tasks))
    expected = [sampler.train_tasks[index].task_id for index in indices]
    other = [index for index in range(count) if got[index] != expected[index]]
    first = {"at": other[0], "got": got[other[0]], "expected": expected[other[0]]} if other else {}
    return {"asked": count, "other": len(other)} | first
