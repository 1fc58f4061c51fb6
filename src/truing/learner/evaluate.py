"""A fixed, paired evaluation: the same tasks and the same random numbers each time."""

from collections.abc import Sequence

import numpy as np

from truing.analysis.evaluation import Evaluation
from truing.analysis.intervals import REWARD_TOLERANCE, Bounds
from truing.errors import RolloutError
from truing.rewards import Rewards, reward_range
from truing.types.rollout import RolloutGroup
from truing.types.status import Status


def evaluate(
    name: str,
    rewards: Rewards,
    groups: Sequence[RolloutGroup],
    passes_at: float | None = None,
) -> Evaluation:
    """Average by task.

    Args:
        name: of the evaluation.
        rewards: what answers are judged by.
        groups: one per task, judged by these rewards.
        passes_at: the reward from which on an answer passes; None for the most that can be earned.
    """
    graded = {g.task.task_id: [r for r in g.rollouts if r.status is not Status.ERROR] for g in groups}
    judged = {task: rollouts for task, rollouts in graded.items() if rollouts}
    failed = {g.task.task_id: g.rollouts[0].error for g in groups if not graded[g.task.task_id]}
    if len(judged) < 2:
        raise RolloutError(
            f"{name} cannot be evaluated: nearly every attempt failed", got=next(iter(failed.values()))
        )
    everyone = [rollout for rollouts in judged.values() for rollout in rollouts]
    names = everyone[0].reward_parts
    bounds = _bounds(rewards, [rollout.reward for rollout in everyone])
    return Evaluation(
        name,
        reward={task: float(np.mean([r.reward for r in rollouts])) for task, rollouts in judged.items()},
        parts={part: float(np.mean([r.reward_parts[part] for r in everyone])) for part in names},
        answers={g.task.task_id: [r.text for r in g.rollouts] for g in groups},
        failed=failed,
        bounds=bounds,
        earned={task: [r.reward for r in rollouts] for task, rollouts in judged.items()},
        passes_at=bounds[1] if passes_at is None and bounds else passes_at,
    )


def _bounds(rewards: Rewards, seen: Sequence[float]) -> Bounds | None:
    """The least and the most that can be earned; None where more, or less, was: a part may be of any size."""
    least, most = reward_range(rewards)
    within = least - REWARD_TOLERANCE <= min(seen) and max(seen) <= most + REWARD_TOLERANCE
    return (least, most) if within else None
