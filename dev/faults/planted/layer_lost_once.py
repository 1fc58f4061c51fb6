"""The gradient of a layer is lost once."""

from itertools import count

from dev.faults.fault import Fault, patched

AT = 7
"""The fourth update of GRPO, after three of supervised fine-tuning."""


def _wrong(real):
    calls = count(1)

    def clip_and_step(optimizer, max_norm, where, *parts):
        if next(calls) == AT:
            for name, parameter in parts[0].items():
                if ".layers.1." in name:
                    parameter.grad = None
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="layer-lost-once",
    numbers=(71,),
    what="the gradient of one layer is lost in one update",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT009", "OPT014"),
    changes={"grpo.steps": 6},
)
