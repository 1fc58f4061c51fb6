"""The gradient of a layer is cleared before the optimizer step."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def clip_and_step(optimizer, max_norm, where, *parts):
        for name, parameter in parts[0].items():
            if ".layers.1." in name:
                parameter.grad = None
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="layer-cleared",
    numbers=(32,),
    what="the gradient of one layer never reaches the optimizer",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT009",),
)
