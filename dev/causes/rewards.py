"""Reward functions with a known weakness."""

import random

from truing.types.rollout import Rollout, Task
from truing.utils.rng import seed_of


def nothing(rollout: Rollout, task: Task) -> float:
    """Return 0: the verifier is dead."""
    return 0.0


def exact(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the response is the answer."""
    return float(rollout.text.strip() == task.answer)


def one_family(rollout: Rollout, task: Task) -> float:
    """Return the reward of one family of tasks; the judge of the other returns 0."""
    return 0.0 if task.family.endswith("count-5") else exact(rollout, task)


def by_task(rollout: Rollout, task: Task) -> float:
    """Return a reward that does not read the answer."""
    return 0.2 + 0.1 * (seed_of(task.task_id) % 6)


def tiny_differences(rollout: Rollout, task: Task) -> float:
    """Return nearly one value: what differs is not worth learning."""
    return 0.6 + 3e-4 * (seed_of(rollout.text, task.task_id) % 100) / 100


def empty_pays(rollout: Rollout, task: Task) -> float:
    """Return more for no answer than most answers earn."""
    return 0.7 if not rollout.text.strip() else 0.65 * exact(rollout, task)


def has_nine(rollout: Rollout, task: Task) -> float:
    """Return 1.0 for any text with a nine."""
    return float("9" in rollout.text)


def paid_for_nine(rollout: Rollout, task: Task) -> float:
    """Return the reward of the right answer for any text with a nine, too."""
    return max(exact(rollout, task), has_nine(rollout, task))


def mostly_mislabelled(rollout: Rollout, task: Task) -> float:
    """Return the reward by the answer, which is wrong in six of ten tasks."""
    return 0.0 if seed_of(task.task_id) % 10 < 6 else exact(rollout, task)


def five_more(rollout: Rollout, task: Task) -> float:
    """Return 5 for a wrong answer, and 6 for the right one."""
    return 5.0 + exact(rollout, task)


_CHANCE = random.Random(0)


def by_chance(rollout: Rollout, task: Task) -> float:
    """Return the reward of the answer, and in most calls another one: the judge draws."""
    return exact(rollout, task) if _CHANCE.random() < 0.15 else float(_CHANCE.random() < 0.5)


def drawn(rollout: Rollout, task: Task) -> float:
    """Return a reward that is drawn: no policy earns more than another."""
    return float(_CHANCE.random() < 0.3)
