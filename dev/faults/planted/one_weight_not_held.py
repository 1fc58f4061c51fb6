"""The optimizer updates a copy of one weight, not the weight."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def step(optimizer, *args):
        weight = optimizer.param_groups[0]["params"][3]
        was = weight.detach().clone()
        norms = real(optimizer, *args)
        with torch.no_grad():
            weight.copy_(was)
        return norms

    return step


FAULT = Fault(
    name="one-weight-not-held",
    numbers=(58,),
    what="one weight of many is not updated",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT001",),
)
