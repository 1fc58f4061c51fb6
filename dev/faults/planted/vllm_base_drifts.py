"""vLLM merges and unmerges adapters, and its base moves a little each time (trl#6688)."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    @torch.no_grad()
    def load(self, folder):
        for name, (down, up) in self.slot.items():
            weight = self.layers[name].weight
            weight.add_(up @ down * 1e-2)  # what is left after merging and unmerging
        real(self, folder)

    return load


FAULT = Fault(
    name="vllm-base-drifts",
    numbers=(78,),
    what="vLLM merges and unmerges adapters, and its base drifts",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="were proven, and the engine changed them since",
    seen=("trl#6688",),
    not_in_bfloat16="below bfloat16's rounding: it is less than the last digit of the base",
)
