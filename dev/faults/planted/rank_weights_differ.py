"""The second replica's weights drift away from the first's."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def step(optimizer, *args):
        norms = real(optimizer, *args)
        with torch.no_grad():
            optimizer.param_groups[0]["params"][3].to_local().mul_(1.001)
        return norms

    return step


FAULT = Fault(
    name="rank-weights-differ",
    numbers=(99,),
    what="the weights of one replica drift away from the others",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("DST001",),
    refusal="the evaluation has other weights than declared",
    changes={"trainer.ranks": 2, "trainer.replicate": 2},
    on_ranks=(1,),
)
