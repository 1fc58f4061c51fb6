"""Gradients are not cleared after a step: each update includes all earlier ones."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    gradients = {}

    def clip_and_step(optimizer, max_norm, where, *parts):
        for name, parameter in parts[0].items():
            if parameter.grad is not None:
                parameter.grad += gradients.get(name, 0.0)
                gradients[name] = parameter.grad.clone()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="gradient-left-over",
    numbers=(56,),
    what="gradients are not cleared between updates",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT009",),
)
