"""The adapter in a vLLM server."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_AHEAD, VLLM_LORA
from truing.models.tiny import HIDDEN


def _vllm_adapter_evicted(real):
    def update_version(self, body):
        self.model.slot = {}
        return real(self, body)

    return update_version


VLLM_ADAPTER_EVICTED = Fault(
    name="vllm-adapter-evicted",
    numbers=(85,),
    what="vLLM drops the adapter after its publication was proven",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.update_version", _vllm_adapter_evicted),
    expected=("SMP011", "SMP004", "RAT002"),
    changes=VLLM_LORA,
    refusal="were proven, and the engine changed them since",
)


def _vllm_adapter_in_bfloat16(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        return {n: (down.bfloat16().float(), up.bfloat16().float()) for n, (down, up) in adapter.items()}

    return read


VLLM_ADAPTER_IN_BFLOAT16 = Fault(
    name="vllm-adapter-in-bfloat16",
    numbers=(77,),
    what="vLLM holds the adapter in bfloat16",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _vllm_adapter_in_bfloat16),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are rounded to bfloat16",
    not_in_bfloat16="no fault: a server that computes in bfloat16 holds adapters in it",
)


def _vllm_adapter_not_active(real):
    return lambda self: {}


VLLM_ADAPTER_NOT_ACTIVE = Fault(
    name="vllm-adapter-not-active",
    numbers=(74,),
    what="vLLM holds the adapter and computes without it",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.adapter", _vllm_adapter_not_active),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="it scores with the base model without its adapter",
)


def _vllm_adapter_not_delivered(real):
    def read(folder, dtype):
        return {name: (down * 0, up * 0) for name, (down, up) in real(folder, dtype).items()}

    return read


VLLM_ADAPTER_NOT_DELIVERED = Fault(
    name="vllm-adapter-not-delivered",
    numbers=(74,),
    what="every publication to vLLM ships zeros",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _vllm_adapter_not_delivered),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="their adapter is missing or zero",
    seen=("verl#7495",),
)


def _vllm_adapter_scaled(real):
    def read(folder, dtype):
        return {name: (down, up * 2) for name, (down, up) in real(folder, dtype).items()}

    return read


VLLM_ADAPTER_SCALED = Fault(
    name="vllm-adapter-scaled",
    numbers=(74,),
    what="vLLM scales the adapter by twice alpha / rank",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _vllm_adapter_scaled),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the adapter is scaled by 2 times",
)


def _vllm_adapters_add_up(real):
    def load(self, folder):
        before = self.slot
        real(self, folder)
        for name, (down, up) in before.items():
            newest_down, newest_up = self.slot[name]
            both = torch.cat([newest_down, down]), torch.cat([newest_up, up], dim=1)
            self.slot = {**self.slot, name: both}

    return load


VLLM_ADAPTERS_ADD_UP = Fault(
    name="vllm-adapters-add-up",
    numbers=(106,),
    what="vLLM adds each adapter to the one before",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _vllm_adapters_add_up),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are neither earlier ones, nor the published ones",
)


def _vllm_alpha_truncated(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        return {name: (down, up / 1.5) for name, (down, up) in adapter.items()}

    return read


VLLM_ALPHA_TRUNCATED = Fault(
    name="vllm-alpha-truncated",
    numbers=(74,),
    what="vLLM scales the adapter by 1 in place of alpha / rank = 1.5",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _vllm_alpha_truncated),
    expected=("SMP011",),
    changes={**VLLM_LORA, "lora.alpha": 6.0},
    refusal="the adapter is scaled by 0.666",
    seen=("sglang#40835",),
)


def _vllm_decodes_without_adapter(real):
    def forward(self, ids, scope, cache):
        decodes = len(ids) == 1 and cache.get_seq_length()
        return real(self, ids, scope._replace(adapter="") if decodes else scope, cache)

    return forward


VLLM_DECODES_WITHOUT_ADAPTER = Fault(
    name="vllm-decodes-without-adapter",
    numbers=(86,),
    what="vLLM reads prompts with the adapter and decodes without it",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.forward", _vllm_decodes_without_adapter),
    expected=("SMP011",),
    changes=VLLM_AHEAD,
    refusal="no single sampling parameter was found that gives them",
)


VOCABULARY = 259
"""Ids of the tiny model."""


def _vllm_head_adapted(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        generator = torch.Generator().manual_seed(0)
        down, up = (
            0.05 * torch.randn(shape, generator=generator) for shape in ((4, HIDDEN), (VOCABULARY, 4))
        )
        return adapter | {"lm_head": (down, up)}

    return read


VLLM_HEAD_ADAPTED = Fault(
    name="vllm-head-adapted",
    numbers=(79,),
    what="vLLM adapts the output head, and the trainer does not",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _vllm_head_adapted),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine adapts 1 layers that the trainer does not: lm_head",
    seen=("trl#7017",),
)


def _vllm_one_behind(real):
    def load(self, folder):
        before = self.slot
        real(self, folder)
        self.slot = before or self.slot

    return load


VLLM_ONE_BEHIND = Fault(
    name="vllm-one-behind",
    numbers=(75,),
    what="vLLM computes with the adapter of the publication before",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _vllm_one_behind),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are the weights of version 0, 1 publication before",
)
