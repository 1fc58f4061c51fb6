"""Each rank clips by the norm of its own shards."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def gradient_norm(parameters):
        local = [weight.grad.to_local() for weight in parameters.values() if weight.grad is not None]
        return torch.nn.utils.get_total_norm(local)

    return gradient_norm


FAULT = Fault(
    name="rank-clips-by-own-norm",
    numbers=(97,),
    what="each rank clips by the norm of its own part of the gradient",
    plant=lambda: patched("truing.learner.optimizer:gradient_norm", _wrong),
    expected=("DST004",),
    changes={"trainer.ranks": 2, "optimizer.max_grad_norm": 0.02},
)
