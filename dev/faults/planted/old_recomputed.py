"""Old log-probabilities are recomputed before each inner step: ratios are always 1."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched
from truing.models.forward.collate import collate
from truing.models.forward.score import score


def _wrong(real):
    def accumulate(learner, minibatch, *args):
        batch = collate(minibatch)
        with torch.no_grad():
            now = score(learner.model, batch, batch.policy_mask).logprob
        fresh = [
            replace(sample, old_logprob=torch.where(sample.policy_mask, now[b, : len(sample)], torch.nan))
            for b, sample in enumerate(minibatch)
        ]
        return real(learner, fresh, *args)

    return accumulate


FAULT = Fault(
    name="old-recomputed",
    numbers=(31,),
    what="old log-probabilities are recomputed with the current weights at every inner step",
    plant=lambda: patched("truing.learner.step:accumulate_gradients", _wrong),
    expected=("RAT003", "RAT007"),
    changes={"grpo.inner_epochs": 3, "sft.steps": 10},
)
