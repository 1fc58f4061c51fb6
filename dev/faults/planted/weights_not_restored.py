"""A resume restores the optimizer's state, and not the weights that it steps."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def restore(learner, folder):
        before = [weight.detach().clone() for weight in learner.parameters.values()]
        real(learner, folder)
        with torch.no_grad():
            for weight, initial in zip(learner.parameters.values(), before, strict=True):
                weight.copy_(initial)

    return restore


FAULT = Fault(
    name="weights-not-restored",
    numbers=(101,),
    what="a resumed run has the optimizer's state of the checkpoint, and the weights of before",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _wrong),
    expected=("OPT002",),
    changes={"trainer.ranks": 2, "checkpoint_every": 1},
    resumed_after=2,
    seen=("miles#2572",),
)
