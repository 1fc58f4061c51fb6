"""What the worker's probes see of the fake server: its layers by vLLM's names, fused as vLLM fuses them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from truing.engines.vllm.worker.truing_vllm_worker import TruingWorker
from truing.faults.fake_vllm.options import Options
from truing.faults.fake_vllm.weights import HeldModel
from truing.models.forward.expert_routes import routers_of

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
"""Layers that vLLM computes as one."""


@dataclass
class _BaseLayer:
    """One linear layer, or several that are fused; it is its own ``quant_method``."""

    parts: Sequence[nn.Module]

    @property
    def quant_method(self) -> "_BaseLayer":
        return self

    @property
    def input_size(self) -> int:
        return self.parts[0].in_features

    def apply(self, layer: object, x: Tensor) -> Tensor:
        return torch.cat([functional.linear(x, part.weight) for part in self.parts], dim=-1)


class _Router(_BaseLayer):
    """A router, which is no linear layer in transformers."""

    @property
    def input_size(self) -> int:
        return self.parts[0].weight.shape[1]


@dataclass
class _Vocabulary:
    """An embedding, or the output head with its packed copy."""

    held: HeldModel
    table: nn.Module
    packed: bool

    @property
    def quant_method(self) -> "_Vocabulary":
        return self

    @property
    def embedding_dim(self) -> int:
        return self.table.weight.shape[1]

    @property
    def org_vocab_size(self) -> int:
        return self.table.weight.shape[0]

    def apply(self, layer: object, x: Tensor) -> Tensor:
        return functional.linear(x, self.held.packed_head if self.packed else self.table.weight)

    def embedding(self, layer: object, ids: Tensor) -> Tensor:
        return self.table.weight[ids]

    def process_weights_after_loading(self, layer: object) -> None:
        if self.packed:
            self.held.refresh_packed()


@dataclass
class _Experts:
    """The experts of a layer, which compute tokens along given routes; it is its own ``quant_method``."""

    dtype: torch.dtype
    experts: Any

    is_monolithic = False
    expert_map = None
    topk_indices_dtype = None

    def __post_init__(self) -> None:
        self.w13_weight = self.experts.gate_up_proj
        self.global_num_experts, _, self.hidden_size = self.w13_weight.shape
        self.top_k = 1
        self.moe_config = SimpleNamespace(hidden_dim_unpadded=self.hidden_size)

    @property
    def quant_method(self) -> "_Experts":
        return self

    def forward_modular(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        return self.experts(x, ids.long(), weights.to(self.dtype))


class _Model:
    """The modules and parameters of a held model, by vLLM's names."""

    packed_modules_mapping = FUSED

    def __init__(self, held: HeldModel) -> None:
        self.held, self.parameters = held, held.base.parameters

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        held = self.held
        routers = set(routers_of(held.base).values())
        for name, module in held.base.named_modules():
            if module is held.base.get_input_embeddings():
                yield name, _Vocabulary(held, module, packed=False)
            if isinstance(getattr(module, "down_proj", None), nn.Parameter):
                yield f"{name}.routed_experts", _Experts(held.dtype, module)
            if module in routers:
                yield name, _Router([module])
        yield "lm_head", _Vocabulary(held, held.head, packed=True)
        yield "logits_processor", SimpleNamespace(**_stack_of_head(held))
        for name, parts in _fused_names(held.layers).items():
            base = _BaseLayer([held.layers[part] for part in parts])
            if held.max_rank:
                yield name, SimpleNamespace(base_layer=base, quant_method=base, **_stacks(held, parts))
                yield f"{name}.base_layer", base
            else:
                yield name, base

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        held = self.held
        for name, parameter in held.base.named_parameters():
            if not name.endswith("_proj.bias"):
                yield name, parameter
        for name, parts in _fused_names(held.layers).items():
            biases = [held.layers[part].bias for part in parts]
            if biases[0] is not None:
                yield f"{name}.bias", torch.cat(biases)


def _fused_names(layers: dict[str, nn.Linear]) -> dict[str, list[str]]:
    """Return the checkpoint's layers by vLLM's layer."""
    fused_by_part = {part: fused for fused, parts in FUSED.items() for part in parts}
    names: dict[str, list[str]] = {}
    for name in layers:
        if name != "lm_head":
            head, _, last = name.rpartition(".")
            names.setdefault(f"{head}.{fused_by_part.get(last, last)}", []).append(name)
    return names


def _stacks(held: HeldModel, parts: Sequence[str]) -> dict[str, tuple[Tensor, ...]]:
    """Return the slots of the parts' adapters: A [1, 1, rank, inputs] and B [1, 1, outputs, rank]."""
    downs, ups = [], []
    for part in parts:
        layer = held.layers[part]
        down, up = held.slot.get(
            part, (torch.zeros(1, layer.in_features), torch.zeros(layer.out_features, 1))
        )
        downs.append(down[None, None])
        ups.append(up[None, None])
    return {"lora_a_stacked": tuple(downs), "lora_b_stacked": tuple(ups)}


def _stack_of_head(held: HeldModel) -> dict[str, Tensor]:
    """Return the slot of the output head's adapter, which vLLM keeps in its logits processor."""
    vocabulary, width = held.head.weight.shape
    down, up = held.slot.get("lm_head", (torch.zeros(1, width), torch.zeros(vocabulary, 1)))
    return {"lora_a_stacked": down[None, None], "lora_b_stacked": up[None, None]}


class FakeWorker(TruingWorker):
    """The worker of the fake server: the methods that Truing calls are the real ones."""

    def __init__(self, held: HeldModel, number: int, options: Options) -> None:
        self.held, self.number, max_logprobs = held, number, options.max_logprobs
        returns_routes = held.routed and options.returns_routes
        config = {"dtype": held.dtype, "logprobs_mode": "processed_logprobs", "generation_config": "vllm"}
        lora = SimpleNamespace(max_lora_rank=held.max_rank, max_loras=1) if held.max_rank else None
        manager = SimpleNamespace(_adapter_manager=SimpleNamespace(lora_index_to_id=[1]))
        self.model_runner = SimpleNamespace(
            model_config=SimpleNamespace(**config, max_logprobs=max_logprobs),
            lora_config=lora,
            get_model=lambda: _Model(held),
            device=torch.device("cuda"),  # a GPU build: its answers have routes if it is asked for them
            aux_output_connector=object() if returns_routes else None,
            lora_manager=manager,
        )

    def truing_hello(self) -> dict[str, Any]:
        """Return what the worker is; its number in place of a process id, since it may run in a thread."""
        return super().truing_hello() | {"pid": self.number}

    def reload_weights(self, weights_path: str) -> None:
        """Replace the base model's weights."""
        self.held.reload_weights(Path(weights_path))
