"""The gradient is negated before the optimizer step, as by an optimizer that maximises."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def clip_and_step(optimizer, max_norm, where, *parts):
        for parameter in parts[0].values():
            if parameter.grad is not None:
                parameter.grad.neg_()
        return real(optimizer, max_norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="gradient-turned",
    numbers=(32,),
    what="the optimizer maximises the loss",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT009",),
)
