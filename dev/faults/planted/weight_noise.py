"""Noise is added to some weights, so that ratios are not 1."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def collect_samples(trainer, step):
        with torch.no_grad():
            for weight in list(trainer.learner.parameters.values())[:2]:
                weight.add_(1e-6 * torch.randn_like(weight))
        return real(trainer, step)

    return collect_samples


FAULT = Fault(
    name="weight-noise",
    numbers=(34,),
    what="1e-6 of noise is added to weights before each step",
    plant=lambda: patched("truing.trainer.stage_trainer:StageTrainer.collect_samples", _wrong),
    expected=("OPT002",),
)
