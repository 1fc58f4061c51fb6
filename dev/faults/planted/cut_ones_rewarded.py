"""Attempts cut at the limit earn the full reward."""

from contextlib import nullcontext

from dev.faults.fault import Fault


def generous(rollout, task):
    """Return 1 for an attempt cut at the limit."""
    return float(rollout.status == "truncated")


FAULT = Fault(
    name="cut-ones-rewarded",
    numbers=(16,),
    what="cut attempts earn the full reward",
    plant=nullcontext,
    expected=("RWD001",),
    changes={"sft.steps": 12, "grpo.group_size": 16},
    reward=generous,
)
