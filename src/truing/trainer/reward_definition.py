"""What defines the rewards of a run, and whether a sampler has the same."""

import hashlib
from typing import Any

from truing.errors import RecordError
from truing.record import RunReader
from truing.rewards import Rewards
from truing.rewards.source_digest import source_digest
from truing.rollouts.sampler import Sampler


def reward_definition(sampler: Sampler) -> dict[str, Any]:
    """Return what defines the rewards: function names with weights, their code, and a hash of the tasks."""
    tasks = [
        (
            task.task_id,
            [dict(m) for m in task.messages],
            task.answer,
            *([dict(task.info)] if task.info else []),
        )
        for task in sampler.train_tasks
    ]
    return {
        "rewards": reward_weights(sampler.env.rewards),
        "code": {name: source_digest(function) for name, (function, _) in sampler.env.rewards.items()},
        "eval_tasks": [task.task_id for task in sampler.eval_tasks],
        "tasks_hash": hashlib.sha256(repr(tasks).encode()).hexdigest()[:16],
    }


def reward_weights(rewards: Rewards) -> dict[str, float]:
    """Return the weight of each reward function, by name."""
    return {name: weight for name, (_, weight) in rewards.items()}


def check_same_rewards(sampler: Sampler, run: RunReader) -> None:
    """Raise if a run was trained with other rewards or tasks than those of the sampler."""
    current, recorded = reward_definition(sampler), run.run_fact("judged")
    if current["rewards"] != recorded["rewards"]:
        raise RecordError(
            "the run was trained with other rewards",
            got=current["rewards"],
            expected=recorded["rewards"],
            remedy="call truing.train in Python with the env= and rewards= of that run",
        )
    if current["tasks_hash"] != recorded["tasks_hash"]:
        raise RecordError(
            "the run was trained with other tasks",
            got=f"digest {current['tasks_hash']}",
            expected=f"digest {recorded['tasks_hash']}",
            remedy="restore the data files as they were when the run started, or pass the env= of that run to"
            " truing.train in Python; other tasks need a new run",
        )


def check_same_reward_code(sampler: Sampler, run: RunReader) -> None:
    """Raise if the source of a reward function has changed since a run started.

    Rewards before and after could not be compared.
    """
    recorded = run.run_fact("judged")["code"]
    for name, current in reward_definition(sampler)["code"].items():
        if recorded.get(name) and current and recorded[name] != current:
            raise RecordError(
                f"the code of the reward {name!r} has changed since the run started",
                got=f"digest {current}",
                expected=f"digest {recorded[name]}",
                remedy="restore the function to resume, or start a new run with the new one",
            )
