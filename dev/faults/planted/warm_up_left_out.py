"""The learning rate is at its peak from the first update on."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda step, steps, peak, cfg: peak


FAULT = Fault(
    name="warm-up-left-out",
    numbers=(57,),
    what="the declared warm-up is missing",
    plant=lambda: patched("truing.learner.learner:learning_rate", _wrong),
    expected=("OPT004",),
    changes={"optimizer.warmup_steps": 50},
)
