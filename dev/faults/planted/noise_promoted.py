"""Rewards of a group differ in the fifth digit, and the division by the deviation gives full advantages."""

from contextlib import nullcontext

from dev.faults.fault import Fault
from truing.utils.rng import seed_of


def nearly_alike(rollout, task):
    """Return the value of the task plus noise of the grader."""
    worth = seed_of(task.task_id) % 2
    return worth + 1e-4 * (seed_of(rollout.rollout_id) % 7)


FAULT = Fault(
    name="noise-promoted",
    numbers=(39,),
    what="rewards that differ by noise alone have full advantages",
    plant=nullcontext,
    expected=("ADV007",),
    changes={"grpo.prompts_per_step": 8},
    reward=nearly_alike,
)
