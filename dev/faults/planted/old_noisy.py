"""Recomputed old log-probabilities come from a forward with dropout."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def with_old(samples, learner):
        noise = torch.Generator().manual_seed(0)
        return [
            replace(row, old_logprob=row.old_logprob + 0.3 * torch.randn(len(row), generator=noise))
            for row in real(samples, learner)
        ]

    return with_old


FAULT = Fault(
    name="old-noisy",
    numbers=(35,),
    what="old log-probabilities come from a forward with noise",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _wrong),
    expected=("RAT008",),
    changes={"correction.method": "truncate"},
)
