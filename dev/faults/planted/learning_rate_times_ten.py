"""The learning rate is ten times the declared one."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda *args, **kwargs: 10 * real(*args, **kwargs)


FAULT = Fault(
    name="learning-rate-times-ten",
    numbers=(57,),
    what="the learning rate is ten times as high as declared",
    plant=lambda: patched("truing.learner.learner:learning_rate", _wrong),
    expected=("OPT004",),
)
