"""Split tasks so that similar ones stay in one split."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components

from truing.envs.base import Split, hash_fraction
from truing.types.rollout import Task


def group_split(
    tasks: Sequence[Task], alike: Callable[[int, int], bool], eval_share: float, seed: int
) -> dict[Split, Sequence[Task]]:
    """Split tasks by hash; similar tasks, also by a chain of similar ones, stay together.

    A group is for evaluation if ``share_of("split", seed, smallest id in it)`` is below ``eval_share``.

    Args:
        tasks: The tasks, in any order; both splits keep it.
        alike: Whether the tasks at two indices, the smaller first, are similar.
        eval_share: Share of groups for evaluation.
        seed: Another seed selects other groups.
    """
    count = len(tasks)
    twins = np.array([[i < j and alike(i, j) for j in range(count)] for i in range(count)], dtype=bool)
    _, labels = connected_components(twins, directed=False)
    names: dict[int, str] = {}
    for label, task in zip(labels.tolist(), tasks, strict=True):
        names[label] = min(names.get(label, task.task_id), task.task_id)
    held_out = [hash_fraction("split", seed, names[label]) < eval_share for label in labels.tolist()]
    return {
        "train": [task for task, out in zip(tasks, held_out, strict=True) if not out],
        "eval": [task for task, out in zip(tasks, held_out, strict=True) if out],
    }
