"""The optimizer's state is cleared before each step."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def clip_and_step(optimizer, max_norm, where, *parts):
        optimizer.state.clear()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="moments-cleared",
    numbers=(57,),
    what="the optimizer's moments are cleared before each step",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT010",),
)
