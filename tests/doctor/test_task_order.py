"""The declared order of tasks, computed a second time."""

from types import SimpleNamespace

import pytest

from truing.doctor.oracle.task_order import expected_tasks
from truing.doctor.rules.smp013 import RULE, chosen_by_reward
from truing.measurements.task_order import task_fact
from truing.rollouts.sampler import Sampler
from truing.types.status import Status

TOTAL, COUNT = 7, 3


def drawn(step, total=TOTAL, count=COUNT):
    sampler = SimpleNamespace(train_tasks=list(range(total)), seed=5)
    return Sampler.tasks_of_step(sampler, "grpo", step, count)


@pytest.mark.parametrize("total", [1, 2, 7, 100])
def test_the_oracle_agrees_with_the_sampler(total):
    for step in range(9):
        assert expected_tasks(5, "grpo", step, COUNT, total) == drawn(step, total)


def test_each_epoch_has_each_task_once_in_another_order():
    order = [index for step in range(14) for index in expected_tasks(5, "grpo", step, COUNT, TOTAL)]
    epochs = [order[first : first + TOTAL] for first in range(0, len(order), TOTAL)]
    assert all(sorted(epoch) == list(range(TOTAL)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)


def fact(order, extra=(), kept=(0, 1)):
    tasks = [SimpleNamespace(task_id=f"t{index}") for index in range(TOTAL)]
    groups = [*((f"5/sft/2/{n}", index) for n, index in enumerate(order)), *extra]
    rollouts = {
        f"{group}/{k}": SimpleNamespace(
            rollout_id=f"{group}/{k}", group_id=group, task=tasks[index], status=Status.DONE
        )
        for group, index in groups
        for k in kept
    }
    setting = SimpleNamespace(stage=SimpleNamespace(prompts_per_step=COUNT, group_size=2))
    return task_fact(tasks, setting, (5, "sft", 2), rollouts)


DECLARED = expected_tasks(5, "sft", 2, COUNT, TOTAL)


def test_the_declared_tasks_have_no_difference():
    assert fact(DECLARED) == {"asked": COUNT, "other": 0, "sampled": 6, "graded": 6}


def test_groups_that_are_sampled_in_addition_do_not_count():
    assert fact(DECLARED, [("5/sft/2/resample/1/0", 0)])["other"] == 0


@pytest.mark.parametrize(("order", "other", "at"), [(DECLARED[::-1], 2, 0), (DECLARED[:2], 1, 2)])
def test_the_first_difference_is_reported(order, other, at):
    result = fact(order)
    assert (result["other"], result["at"], result["expected"]) == (other, at, f"t{DECLARED[at]}")
    assert result["got"] == (f"t{order[at]}" if at < len(order) else "none")


@pytest.mark.parametrize("kept", [(0,), (1, 2), (0, 1, 2)])
def test_a_group_without_the_rollouts_that_were_sampled_is_reported(kept):
    result = fact(DECLARED, kept=kept)
    assert (result["incomplete"], result["group"]) == (COUNT, "5/sft/2/0")
    assert (result["rollouts"], result["size"]) == ([*kept], 2)


def test_rollouts_chosen_by_their_reward_are_claimed():
    (claim,) = RULE.judge(chosen_by_reward())
    assert claim.what == "1 of 2 groups do not have the rollouts that were sampled"
    assert claim.got == "0/grpo/0/0 has rollouts 1, 4, 5, 7"
