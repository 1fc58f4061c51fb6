"""An evaluation averages by task and reports the range of rewards."""

import pytest

from truing.trainer.evaluate import evaluation_of
from truing.types.rollout import Rollout, RolloutGroup, Task
from truing.types.sampling_params import RAW
from truing.types.status import Status


def group(task_id, rewards):
    task = Task(task_id, "test", ())
    rollouts = [
        Rollout(f"{task_id}/{i}", task_id, task, (), "", Status.DONE, RAW, reward, {"part": 2 * reward})
        for i, reward in enumerate(rewards)
    ]
    return RolloutGroup(task_id, task, tuple(rollouts))


PART = {"part": (lambda rollout, task: 0.0, 1.0)}


def test_samples_are_averaged_within_their_task_first():
    made = evaluation_of("x", PART, [group("a", [0.0, 1.0, 1.0, 0.0]), group("b", [1.0])])
    assert made.reward == {"a": 0.5, "b": 1.0}
    assert made.parts == {"part": pytest.approx(2 * 3 / 5)}
    assert made.estimate().mean == 0.75


def test_what_can_be_earned_is_what_the_weights_say_unless_more_was():
    rewards = {"exact": (None, 1.0), "partial": (None, 0.5), "rude": (None, -0.25), "length": (None, 0.0)}
    groups = [group("a", [0.0, 1.5]), group("b", [-0.25])]
    assert evaluation_of("x", rewards, groups).bounds == (-0.25, 1.5)
    for odd in (1.6, -0.3):
        assert evaluation_of("x", rewards, [*groups, group("c", [odd])]).bounds is None
