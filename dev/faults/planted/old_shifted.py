"""Old log-probabilities are one token late."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def with_old(samples, learner):
        def late(sample):
            moved = sample.old_logprob.roll(1)
            known = torch.where(moved.isnan(), sample.old_logprob, moved)
            return replace(sample, old_logprob=torch.where(sample.policy_mask, known, torch.nan))

        return [late(sample) for sample in real(samples, learner)]

    return with_old


FAULT = Fault(
    name="old-shifted",
    numbers=(3, 33),
    what="old log-probabilities are shifted by one token",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _wrong),
    expected=("RAT004",),
    changes={"sampling.max_new_tokens": 8},
)
