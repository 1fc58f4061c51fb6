"""The KL exceeds its cap early, and every later update is skipped."""

from contextlib import nullcontext

from dev.faults.fault import Fault

FAULT = Fault(
    name="cap-for-ever",
    numbers=(73,),
    what="a cap on the KL skips every update",
    plant=nullcontext,
    expected=("OPT013",),
    changes={"kl.cap": 1e-6, "kl.cap_action": "skip", "grpo.steps": 12},
)
