"""Noise is added to some weights, so that ratios are not 1."""

import torch

from truing.faults.fault import Fault, patched


def _wrong(real):
    def draw(self, learner, stage, step):
        with torch.no_grad():
            for weight in list(learner.parameters.values())[:2]:
                weight.add_(1e-6 * torch.randn_like(weight))
        return real(self, learner, stage, step)

    return draw


FAULT = Fault(
    name="weight-noise",
    numbers=(34,),
    what="1e-6 of noise is added to weights before each step",
    plant=lambda: patched("truing.trainer.loop:Loop.collect_samples", _wrong),
    expected=("OPT002",),
)
