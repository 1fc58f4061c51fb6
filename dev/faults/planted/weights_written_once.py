"""Some weights change once, directly after the optimizer step."""

from itertools import count

import torch

from dev.faults.fault import Fault, patched

AT = 7
"""The fourth update of GRPO, after three of supervised fine-tuning."""


def _wrong(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        norms = real(optimizer, max_norm, where, *parts)
        if next(calls) == AT:
            with torch.no_grad():
                next(iter(parts[0].values())).view(-1)[::7] += 1e-5
        return norms

    return clip_and_step


FAULT = Fault(
    name="weights-written-once",
    numbers=(34,),
    what="some weights of one tensor change by 1e-5 once, after the optimizer step",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT002",),
    changes={"grpo.steps": 6},
)
