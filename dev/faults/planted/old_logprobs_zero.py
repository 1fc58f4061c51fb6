"""Old log-probabilities are looked up by a wrong key, and replaced by zeros."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched


def _zeros(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        return replace(original, old_logprob=torch.zeros_like(original.old_logprob))

    return sample


FAULT = Fault(
    name="old-logprobs-zero",
    numbers=(30,),
    what="old log-probabilities are filled in with zeros by a wrong key",
    plant=lambda: patched("truing.rollouts.flatten:_sample", _zeros),
    expected=("RAT001",),
)
