"""vLLM merges each adapter into a base in bfloat16, which loses the update (NeMo-RL#3696)."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    @torch.no_grad()
    def load(self, folder):
        real(self, folder)
        for name, (down, up) in self.slot.items():
            weight = self.layers[name].weight
            weight.copy_((weight + up @ down).bfloat16().float())
        self.slot = {}

    return load


FAULT = Fault(
    name="vllm-merged-in-bfloat16",
    numbers=(77,),
    what="vLLM merges each adapter into a base in bfloat16",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine computes with other weights than were published",
    seen=("NeMo-RL#3696",),
)
