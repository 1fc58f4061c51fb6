"""A resume restores the optimizer's state, and not the second rank's part of the weights."""

import torch

from truing.faults.fault import Fault, patched


def _wrong(real):
    def restore(learner, folder):
        before = [weight.detach().clone() for weight in learner.parameters.values()]
        real(learner, folder)
        with torch.no_grad():
            for weight, initial in zip(learner.parameters.values(), before, strict=True):
                weight.copy_(initial)

    return restore


FAULT = Fault(
    name="rank-weights-not-restored",
    numbers=(101,),
    what="a resumed run lacks one rank's part of the weights, and has its optimizer state",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _wrong),
    expected=("OPT002",),
    changes={"trainer.ranks": 2, "checkpoint_every": 1},
    on_ranks=(1,),
    resumed_after=2,
    seen=("miles#2572",),
)
