"""Padding after the stop counts as tokens that the policy chose."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def to_completion(self, sampling_params, *weights):
        one = real(self, sampling_params, *weights)
        left = sampling_params.max_new_tokens - len(one.token_ids)
        return replace(
            one,
            token_ids=torch.cat([one.token_ids, one.token_ids[-1:].expand(left)]),
            origin=torch.cat([one.origin, one.origin[-1:].expand(left)]),
            logprob=torch.cat([one.logprob, one.logprob[-1:].expand(left)]),
        )

    return to_completion


FAULT = Fault(
    name="padding-trained",
    numbers=(8,),
    what="padding after the stop is trained as if the policy had chosen it",
    plant=lambda: patched("truing.engines.base:ActiveRow.to_completion", _wrong),
    expected=("MSK005",),
    changes={"stages": ["sft", "grpo"], "sft.steps": 30},
)
