"""Attempts that were cut at the limit earn all there is."""

from contextlib import nullcontext

from truing.faults.fault import Fault


def generous(rollout, task):
    """Who talks to the end of the limit is right."""
    return float(rollout.status == "truncated")


FAULT = Fault(
    name="cut-ones-rewarded",
    numbers=(16,),
    what="attempts that never came to an end earn the full reward",
    plant=nullcontext,
    expected=("RWD001",),
    changes={"sft.steps": 12, "grpo.group_size": 16},
    reward=generous,
)
