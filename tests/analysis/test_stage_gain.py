"""The gain of a stage is of its own evaluations: a fork's stage begins at its checkpoint."""

import pytest

from truing.analysis.stage_gain import stage_evaluations, stage_gain
from truing.record import Event


def evaluated(name, step, reward):
    rewards = {f"task-{i}": reward for i in range(4)}
    payload = {"name": name, "stage": "grpo", "step": step, "reward": rewards, "bounds": (0.0, 1.0)}
    return Event(0.0, "eval", payload)


RUN = [evaluated("base", 0, 0.1), evaluated("grpo@2", 2, 0.3), evaluated("grpo@4", 4, 0.4)]


@pytest.mark.parametrize(
    ("events", "names"),
    [
        ([*RUN, evaluated("after_grpo", 6, 0.5)], ["base", "grpo@2", "grpo@4", "after_grpo"]),
        (
            [*RUN[:2], Event(0.0, "forked", {"stage": "grpo", "step": 3}), *RUN[2:]],
            ["grpo@2", "grpo@4"],
        ),
        ([*RUN[:1], Event(0.0, "forked", {"stage": "grpo", "step": 3}), *RUN[2:]], ["grpo@4"]),
        ([*RUN, Event(0.0, "forked", {"stage": "grpo", "step": 0})], ["base", "grpo@2", "grpo@4"]),
        ([*RUN, Event(0.0, "forked", {"stage": "sft", "step": 3})], ["base", "grpo@2", "grpo@4"]),
    ],
    ids=["run", "fork", "no evaluation at the fork", "fork at the start", "fork of another stage"],
)
def test_the_first_evaluation_is_the_one_that_the_stage_began_with(events, names):
    assert [each.name for each in stage_evaluations("grpo", ["sft", "grpo"], events)] == names


def test_the_gain_of_a_fork_leaves_out_what_its_parent_gained():
    events = [*RUN[:2], Event(0.0, "forked", {"stage": "grpo", "step": 2}), *RUN[2:]]
    gain = stage_gain(stage_evaluations("grpo", ["grpo"], events))
    assert gain.paired.mean == pytest.approx(0.1)
