"""A layer of vLLM's base changes after its publication was proven."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    @torch.no_grad()
    def update_version(self, body):
        next(iter(self.model.layers.values())).weight.mul_(1.05)
        return real(self, body)

    return update_version


FAULT = Fault(
    name="vllm-base-changed-later",
    numbers=(85,),
    what="a layer of vLLM's base changes after its publication was proven",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.update_version", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine changed them since",
)
