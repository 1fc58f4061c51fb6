"""The gradient of one weight counts twice in one update."""

from itertools import count

from dev.faults.fault import Fault, patched

AT = 7
"""The fourth update of GRPO, after three of supervised fine-tuning."""


def _wrong(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        if next(calls) == AT:
            parts[0][sorted(parts[0])[5]].grad.mul_(2)
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="weight-doubled-once",
    numbers=(71,),
    what="the gradient of one weight counts twice in one update",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT014", "OPT009"),
    changes={"grpo.steps": 6},
)
