"""The weights in a vLLM server."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM, VLLM_LORA


def _vllm_base_changed_later(real):
    @torch.no_grad()
    def update_version(self, body):
        next(iter(self.model.layers.values())).weight.mul_(1.05)
        return real(self, body)

    return update_version


VLLM_BASE_CHANGED_LATER = Fault(
    name="vllm-base-changed-later",
    numbers=(85,),
    what="a layer of vLLM's base changes after its publication was proven",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.update_version", _vllm_base_changed_later),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine changed them since",
)


def _vllm_base_drifts(real):
    @torch.no_grad()
    def load(self, folder):
        for name, (down, up) in self.slot.items():
            weight = self.layers[name].weight
            weight.add_(up @ down * 1e-2)  # what is left after merging and unmerging
        real(self, folder)

    return load


VLLM_BASE_DRIFTS = Fault(
    name="vllm-base-drifts",
    numbers=(78,),
    what="vLLM merges and unmerges adapters, and its base drifts",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _vllm_base_drifts),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="were proven, and the engine changed them since",
    seen=("trl#6688",),
    not_in_bfloat16="below bfloat16's rounding: it is less than the last digit of the base",
)


def _vllm_heads_permuted(real):
    def read(folder):
        weights = real(folder)
        for name in [each for each in weights if "q_proj" in each or "k_proj" in each]:
            rows = torch.arange(len(weights[name])).view(-1, 2, 4).transpose(1, 2).flatten()
            weights[name] = weights[name][rows]
        return weights

    return read


VLLM_HEADS_PERMUTED = Fault(
    name="vllm-heads-permuted",
    numbers=(105,),
    what="queries and keys have the layout of another rotary embedding",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _vllm_heads_permuted),
    expected=("SMP011",),
    changes=VLLM,
    refusal="in 4 of 16 layers: they are neither earlier ones",
)


def _vllm_layer_left_out(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        del adapter[next(iter(adapter))]
        return adapter

    return read


VLLM_LAYER_LEFT_OUT = Fault(
    name="vllm-layer-left-out",
    numbers=(74,),
    what="vLLM leaves out one layer of each adapter",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _vllm_layer_left_out),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="in 1 of 14 layers: their adapter is missing or zero",
)


def _vllm_merged_in_bfloat16(real):
    @torch.no_grad()
    def load(self, folder):
        real(self, folder)
        for name, (down, up) in self.slot.items():
            weight = self.layers[name].weight
            weight.copy_((weight + up @ down).bfloat16().float())
        self.slot = {}

    return load


VLLM_MERGED_IN_BFLOAT16 = Fault(
    name="vllm-merged-in-bfloat16",
    numbers=(77,),
    what="vLLM merges each adapter into a base in bfloat16",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _vllm_merged_in_bfloat16),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="the engine computes with other weights than were published",
    seen=("NeMo-RL#3696",),
)


def _vllm_norms_rounded(real):
    def read(folder):
        weights = real(folder)
        return {name: each.bfloat16().float() if each.ndim == 1 else each for name, each in weights.items()}

    return read


VLLM_NORMS_ROUNDED = Fault(
    name="vllm-norms-rounded",
    numbers=(77,),
    what="norms are rounded to bfloat16 on their way to vLLM",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _vllm_norms_rounded),
    expected=("SMP011",),
    changes=VLLM,
    refusal="the engine holds other vectors than were published: 5 of 5: they are rounded to bfloat16",
    not_in_bfloat16="no fault: the published weights are in bfloat16",
)


def _vllm_not_synced_after_sleep(real):
    def wake_up(self, body):
        self.model.load_adapter = lambda folder: None
        return real(self, body)

    return wake_up


VLLM_NOT_SYNCED_AFTER_SLEEP = Fault(
    name="vllm-not-synced-after-sleep",
    numbers=(75,),
    what="vLLM takes no weights after its first sleep, and its version is counted up",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.wake_up", _vllm_not_synced_after_sleep),
    expected=("SMP011",),
    changes={**VLLM_LORA, "engine.sleep": True},
    refusal="they are the weights of version",
    seen=("trl#5312",),
)


def _vllm_other_base(real):
    @torch.no_grad()
    def read(folder, dtype):
        model = real(folder, dtype)
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        return model

    return read


VLLM_OTHER_BASE = Fault(
    name="vllm-other-base",
    numbers=(78,),
    what="vLLM has the base of another checkpoint",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_base", _vllm_other_base),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no layer is as published, as of another model",
)


def _vllm_quantized_to_int8(real):
    def read(folder):
        weights = real(folder)
        for name in [each for each in weights if "_proj" in each]:
            weight = weights[name].float()
            scale = weight.abs().amax(1, keepdim=True) / 127
            weights[name] = (weight / scale).round() * scale
        return weights

    return read


VLLM_QUANTIZED_TO_INT8 = Fault(
    name="vllm-quantized-to-int8",
    numbers=(77,),
    what="vLLM quantizes its layers to int8",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _vllm_quantized_to_int8),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are quantized to int8, with a scale for each row",
)


def _vllm_reload_skipped(real):
    return lambda self, folder: None


VLLM_RELOAD_SKIPPED = Fault(
    name="vllm-reload-skipped",
    numbers=(75,),
    what="vLLM keeps its first weights, and its version is counted up",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.reload_weights", _vllm_reload_skipped),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are the weights of version 0, 1 publication before",
    seen=("trl#5312", "trl#6344"),
)


def _vllm_rounded_to_bfloat16(real):
    def read(folder):
        return {name: weight.bfloat16().float() for name, weight in real(folder).items()}

    return read


VLLM_ROUNDED_TO_BFLOAT16 = Fault(
    name="vllm-rounded-to-bfloat16",
    numbers=(77,),
    what="all weights are rounded to bfloat16 on their way to vLLM",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _vllm_rounded_to_bfloat16),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are rounded to bfloat16, which loses small updates",
    not_in_bfloat16="no fault: the published weights are in bfloat16",
)


ROWS = 4
"""Rows that keep their first values."""


def _vllm_rows_not_loaded(real):
    @torch.no_grad()
    def reload(self, folder):
        table = self.base.get_input_embeddings().weight
        before = table[-ROWS:].clone()
        real(self, folder)
        table[-ROWS:] = before

    return reload


VLLM_ROWS_NOT_LOADED = Fault(
    name="vllm-rows-not-loaded",
    numbers=(75,),
    what="a reload leaves out the embeddings of the last ids",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.reload_weights", _vllm_rows_not_loaded),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are neither earlier ones",
)


def _vllm_slices_exchanged(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        pairs = {name: name.replace("k_proj", "v_proj") for name in adapter if "k_proj" in name}
        other = pairs | {to: name for name, to in pairs.items()}
        return {name: adapter[other.get(name, name)] for name in adapter}

    return read


VLLM_SLICES_EXCHANGED = Fault(
    name="vllm-slices-exchanged",
    numbers=(105,),
    what="vLLM exchanges the adapters of k_proj and v_proj in its fused projection",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _vllm_slices_exchanged),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="in 4 of 14 layers: they are neither earlier ones",
)


def _vllm_tied_head_stale(real):
    return lambda self: None


VLLM_TIED_HEAD_STALE = Fault(
    name="vllm-tied-head-stale",
    numbers=(76,),
    what="a reload leaves vLLM's packed output head as it was",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.refresh_packed", _vllm_tied_head_stale),
    expected=("SMP011",),
    changes=VLLM,
    refusal="in 1 of 16 layers: they are the weights of version 0, 1 publication before",
)


def _vllm_transfer_off(real):
    loads = []

    def load(self, folder):
        loads.append(folder)
        if len(loads) <= 2:
            real(self, folder)

    return load


VLLM_TRANSFER_OFF = Fault(
    name="vllm-transfer-off",
    numbers=(75,),
    what="vLLM takes the first two adapters only, and its version is counted up",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _vllm_transfer_off),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are the weights of version 3, 1 publication before",
    seen=("trl#6344",),
)


def _vllm_two_behind(real):
    loaded = []

    def load(self, folder):
        real(self, folder)
        loaded.append(self.slot)
        self.slot = loaded[-1] if len(loaded) < 4 else loaded[-3]

    return load


VLLM_TWO_BEHIND = Fault(
    name="vllm-two-behind",
    numbers=(75,),
    what="vLLM computes with all weights of two publications before, after three healthy ones",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.load_adapter", _vllm_two_behind),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="they are the weights of version 3, 2 publications before",
)
