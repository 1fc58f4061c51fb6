"""The verifier rejects every answer."""

from contextlib import nullcontext

from dev.faults.fault import Fault


def nothing(rollout, task):
    """Return 1 for a tag that no prompt requests."""
    return 0.0


FAULT = Fault(
    name="verifier-dead",
    numbers=(37, 44),
    what="every answer earns nothing",
    plant=nullcontext,
    expected=("ADV004", "RWD006"),
    changes={"sft.steps": 30, "grpo.steps": 12},
    reward=nothing,
)
