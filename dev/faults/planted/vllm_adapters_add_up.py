"""vLLM adds each adapter to the one before it, in place of replacing it."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def load(self, folder):
        before = self.slot
        real(self, folder)
        for name, (down, up) in before.items():
            newest_down, newest_up = self.slot[name]
            both = torch.cat([newest_down, down]), torch.cat([newest_up, up], dim=1)
            self.slot = {**self.slot, name: both}

    return load


FAULT = Fault(
    name="vllm-adapters-add-up",
    numbers=(106,),
    what="vLLM adds each adapter to the one before",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are neither earlier ones, nor the published ones",
)
