"""Every turn begins with forced tokens, and the mask leaves such turns out."""

from contextlib import nullcontext

from dev.faults.fault import Fault

FAULT = Fault(
    name="every-turn-forced",
    numbers=(72,),
    what="no token is trained: every turn begins with forced tokens, and the mask leaves such turns out",
    plant=nullcontext,
    expected=("MSK009",),
    changes={
        "episode.mask": "action",
        "episode.forced_prefix": "1",
        "episode.force_rate": 1.0,
        "grpo.steps": 12,
    },
)
