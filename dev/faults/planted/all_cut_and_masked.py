"""Every attempt is cut, and the recipe masks cut attempts."""

from contextlib import nullcontext

from dev.faults.fault import Fault

FAULT = Fault(
    name="all-cut-and-masked",
    numbers=(72,),
    what="no token is trained: every attempt is cut, and the gate masks cut attempts",
    plant=nullcontext,
    expected=("MSK009",),
    changes={
        "gates.truncated": "mask",
        "sampling.min_new_tokens": 4,
        "grpo.steps": 12,
    },
)
