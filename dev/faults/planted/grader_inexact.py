"""The grader gives the same answer another reward each time."""

from contextlib import nullcontext

import numpy as np

from dev.faults.fault import Fault


def inexact_reward(rollout, task):
    """A judge at a temperature."""
    return float(np.random.default_rng().random())


FAULT = Fault(
    name="grader-inexact",
    numbers=(46,),
    what="the same answer gets another reward when graded again",
    plant=nullcontext,
    expected=("RWD002",),
    reward=inexact_reward,
)
