"""Padding after the stop counts as tokens that the policy chose."""

from dataclasses import replace

import torch

from truing.faults.fault import Fault, patched


def _wrong(real):
    def generate(self, requests, contract):
        def padded(one):
            left = contract.max_new_tokens - len(one.token_ids)
            return replace(
                one,
                token_ids=torch.cat([one.token_ids, one.token_ids[-1:].expand(left)]),
                origin=torch.cat([one.origin, one.origin[-1:].expand(left)]),
                logprob=torch.cat([one.logprob, one.logprob[-1:].expand(left)]),
            )

        return [padded(one) for one in real(self, requests, contract)]

    return generate


FAULT = Fault(
    name="padding-trained",
    numbers=(8,),
    what="padding after the stop is trained as if the policy had chosen it",
    plant=lambda: patched("truing.engines.local.engine:LocalEngine.generate", _wrong),
    expected=("MSK005",),
    changes={"stages": ["sft", "grpo"], "sft.steps": 30},
)
