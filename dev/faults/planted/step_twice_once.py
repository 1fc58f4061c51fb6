"""The optimizer makes one step twice."""

from itertools import count

from dev.faults.fault import Fault, patched

AT = 7
"""The fourth update of GRPO, after three of supervised fine-tuning."""


def _wrong(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        if next(calls) == AT:
            optimizer.step()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="step-twice-once",
    numbers=(58, 71),
    what="the optimizer makes one of its steps twice",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT014",),
    changes={"grpo.steps": 6},
)
