"""vLLM applies an adapter to the output head that the trainer's log-probabilities lack (trl#7017)."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA
from truing.models.tiny import HIDDEN

VOCABULARY = 259
"""Ids of the tiny model."""


def _wrong(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        generator = torch.Generator().manual_seed(0)
        down, up = (
            0.05 * torch.randn(shape, generator=generator) for shape in ((4, HIDDEN), (VOCABULARY, 4))
        )
        return adapter | {"lm_head": (down, up)}

    return read


FAULT = Fault(
    name="vllm-head-adapted",
    numbers=(79,),
    what="vLLM adapts the output head, and the trainer does not",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine adapts 1 layers that the trainer does not: lm_head",
    seen=("trl#7017",),
)
