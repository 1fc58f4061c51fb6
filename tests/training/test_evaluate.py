"""An evaluation averages by task."""

import pytest

from truing.contract import RAW
from truing.outcomes import Status
from truing.training.evaluate import evaluate
from truing.types import Rollout, RolloutGroup, Task


def group(task_id, rewards):
    task = Task(task_id, "test", ())
    rollouts = [
        Rollout(f"{task_id}/{i}", task_id, task, (), "", Status.DONE, RAW, reward, {"part": 2 * reward})
        for i, reward in enumerate(rewards)
    ]
    return RolloutGroup(task_id, task, tuple(rollouts))


def test_samples_are_averaged_within_their_task_first():
    made = evaluate("x", lambda: [group("a", [0.0, 1.0, 1.0, 0.0]), group("b", [1.0])])
    assert made.reward == {"a": 0.5, "b": 1.0}
    assert made.parts == {"part": pytest.approx(2 * 3 / 5)}
    assert made.estimate().mean == 0.75
