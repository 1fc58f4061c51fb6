"""vLLM has the base of another checkpoint, to which each adapter fits."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    @torch.no_grad()
    def read(folder, dtype):
        model = real(folder, dtype)
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        return model

    return read


FAULT = Fault(
    name="vllm-other-base",
    numbers=(78,),
    what="vLLM has the base of another checkpoint",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_base", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no layer is as published, as of another model",
)
