"""A cap on the KL is passed early, and holds every update back from then on."""

from contextlib import nullcontext

from truing.faults.fault import Fault

FAULT = Fault(
    name="cap-for-ever",
    numbers=(73,),
    what="a cap on the KL holds every update back for ever",
    plant=nullcontext,
    expected=("OPT013",),
    changes={"kl.cap": 1e-6, "kl.cap_action": "skip", "grpo.steps": 12},
)
