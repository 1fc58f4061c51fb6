"""Queries and keys arrive in the layout of another rotary embedding: pairs are next to each other."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    def read(folder):
        weights = real(folder)
        for name in [each for each in weights if "q_proj" in each or "k_proj" in each]:
            rows = torch.arange(len(weights[name])).view(-1, 2, 4).transpose(1, 2).flatten()
            weights[name] = weights[name][rows]
        return weights

    return read


FAULT = Fault(
    name="vllm-heads-permuted",
    numbers=(105,),
    what="queries and keys have the layout of another rotary embedding",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="in 4 of 16 layers: they are neither earlier ones",
)
