"""The results of an evaluation: rewards by task, from groups that use the same random numbers each time."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from truing.analysis.evaluation import Evaluation
from truing.analysis.intervals import REWARD_TOLERANCE, Bounds
from truing.errors import RolloutError
from truing.rewards import Rewards, reward_range
from truing.types.rollout import RolloutGroup
from truing.types.status import Status

TOOL_REMEDY = (
    "fix the tool or the environment; where a call is the model's mistake (an unknown name, say), raise"
    " truing.ToolError instead of KeyError: the model reads its text, and the attempt goes on"
)
"""The remedy where attempts fail: what ends them is an exception of a tool or of an environment."""


def remedy_of(error: str) -> str:
    """Return what to do about an attempt that failed; "" if its error says so itself."""
    return "" if "remedy:" in error else TOOL_REMEDY


def evaluate(
    name: str,
    rewards: Rewards,
    groups: Sequence[RolloutGroup],
    passes_at: float | None = None,
) -> Evaluation:
    """Return the evaluation: rewards averaged by task.

    Args:
        name: of the evaluation.
        rewards: the environment's reward functions.
        groups: one per task, graded by these rewards.
        passes_at: the lowest reward of an answer that passes; None for the maximum reward.
    """
    graded = {g.task.task_id: [r for r in g.rollouts if r.status is not Status.ERROR] for g in groups}
    by_task = {task: rollouts for task, rollouts in graded.items() if rollouts}
    failed = {g.task.task_id: g.rollouts[0].error for g in groups if not graded[g.task.task_id]}
    if len(by_task) < 2:
        first = next(iter(failed.values()))
        raise RolloutError(
            f"the evaluation {name} has rewards for fewer than two tasks: the other attempts failed",
            got=first,
            remedy=remedy_of(first),
        )
    all_rollouts = [rollout for rollouts in by_task.values() for rollout in rollouts]
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for rollout in all_rollouts:
        for part, value in rollout.reward_parts.items():
            parts[part].append(value)
    bounds = _bounds(rewards, [rollout.reward for rollout in all_rollouts])
    return Evaluation(
        name,
        reward={task: float(np.mean([r.reward for r in rollouts])) for task, rollouts in by_task.items()},
        parts={part: float(np.mean(values)) for part, values in parts.items()},
        answers={g.task.task_id: [r.text for r in g.rollouts] for g in groups},
        failed=failed,
        bounds=bounds,
        earned={task: [r.reward for r in rollouts] for task, rollouts in by_task.items()},
        passes_at=bounds[1] if passes_at is None and bounds else passes_at,
    )


def _bounds(rewards: Rewards, observed: Sequence[float]) -> Bounds | None:
    """Return the minimum and maximum reward; None if some reward is outside, as a part may have any size."""
    low, high = reward_range(rewards)
    inside = low - REWARD_TOLERANCE <= min(observed) and max(observed) <= high + REWARD_TOLERANCE
    return (low, high) if inside else None
