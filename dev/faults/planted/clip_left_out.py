"""The gradient is not clipped."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda optimizer, norm, where, *parts: real(optimizer, 1e9, where, *parts)


FAULT = Fault(
    name="clip-left-out",
    numbers=(57,),
    what="the declared clip of the gradient is missing",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT008",),
    changes={"optimizer.max_grad_norm": 0.01},
)
