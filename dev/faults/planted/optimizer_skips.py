"""The optimizer step is skipped, as by a gradient scaler."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def clip_and_step(optimizer, norm, where, *parts):
        norms = [
            float(torch.nn.utils.get_total_norm([p.grad for p in part.values() if p.grad is not None]))
            for part in parts
        ]
        optimizer.zero_grad(set_to_none=True)
        return norms

    return clip_and_step


FAULT = Fault(
    name="optimizer-skips",
    numbers=(58,),
    what="the optimizer step is skipped",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("OPT001",),
)
