"""The gradient is clipped after every micro-batch."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def backward(learner, micro, divided, trace, where):
        real(learner, micro, divided, trace, where)
        if not where.startswith("the doctor"):
            torch.nn.utils.clip_grad_norm_(learner.parameters.values(), 0.02)

    return backward


FAULT = Fault(
    name="clipped-each-micro-batch",
    numbers=(57,),
    what="the accumulated gradient is clipped after every micro-batch",
    plant=lambda: patched("truing.learner.step:backward", _wrong),
    expected=("OPT009",),
    changes={"optimizer.micro_batch_tokens": 64, "optimizer.max_grad_norm": 0.02},
)
