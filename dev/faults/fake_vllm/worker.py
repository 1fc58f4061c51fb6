"""What the worker's probes see of the fake server: its layers by vLLM's names, fused as vLLM fuses them."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.shares import ROW_PARALLEL, Share
from dev.faults.fake_vllm.weights import HeldModel
from truing.engines.vllm.worker.truing_vllm_worker import TruingWorker
from truing.models.forward.expert_routes import routers_of

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
"""Layers that vLLM computes as one."""


@dataclass
class _BaseLayer:
    """One linear layer, or several that are fused; it is its own ``quant_method``.

    ``copies`` are the workers that hold the same rows of each part.
    """

    parts: Sequence[nn.Linear]
    share: Share
    copies: Sequence[int]
    row_parallel: bool

    def __post_init__(self) -> None:
        self.tp_size, self.tp_rank = self.share.workers, self.share.rank
        self.num_kv_head_replicas = max(self.copies)
        self.input_size = self.parts[0].weight.shape[1]
        self.input_size_per_partition = self.input_size // (self.tp_size if self.row_parallel else 1)
        self.output_partition_sizes = [len(part) for part in self._weights()]

    @property
    def quant_method(self) -> "_BaseLayer":
        return self

    def held(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows of the parts' tensors that this worker holds."""
        if self.row_parallel:
            return list(tensors)
        return [self.share.rows(each, copies) for each, copies in zip(tensors, self.copies, strict=True)]

    def _weights(self) -> list[Tensor]:
        weights = [part.weight for part in self.parts]
        return [self.share.columns(each) for each in weights] if self.row_parallel else self.held(weights)

    @property
    def weight(self) -> Tensor:
        return torch.cat(self._weights())

    def apply(self, layer: object, x: Tensor) -> Tensor:
        return torch.cat([functional.linear(x, weight) for weight in self._weights()], dim=-1)


@dataclass
class _Router:
    """A router, which is no linear layer in transformers; each worker holds all of it."""

    weight: Tensor

    def __post_init__(self) -> None:
        self.input_size = self.weight.shape[1]

    @property
    def quant_method(self) -> "_Router":
        return self

    def apply(self, layer: object, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


@dataclass
class _Vocabulary:
    """An embedding, or the output head with its packed copy."""

    model: HeldModel
    table: Tensor
    packed: bool
    share: Share

    def __post_init__(self) -> None:
        self.tp_size = self.share.workers
        self.org_vocab_size, self.embedding_dim = self.table.shape
        self.shard_indices = self.share.vocabulary(self.org_vocab_size)

    @property
    def quant_method(self) -> "_Vocabulary":
        return self

    @property
    def weight(self) -> Tensor:
        return self._rows(self.table)

    def _rows(self, table: Tensor) -> Tensor:
        held = self.shard_indices
        return table[held.org_vocab_start_index : held.org_vocab_end_index]

    def apply(self, layer: object, x: Tensor) -> Tensor:
        return functional.linear(x, self._rows(self.model.packed_head if self.packed else self.table))

    def embedding(self, layer: object, ids: Tensor) -> Tensor:
        return self._rows(self.table)[ids]

    def process_weights_after_loading(self, layer: object) -> None:
        if self.packed:
            self.model.refresh_packed()


@dataclass
class _Experts:
    """The experts of a layer, which compute tokens along given routes; it is its own ``quant_method``.

    A worker holds a part of the inner width of each.
    """

    dtype: torch.dtype
    experts: Any
    share: Share

    is_monolithic = False
    expert_map = None
    topk_indices_dtype = None

    def __post_init__(self) -> None:
        gates, ups = self.experts.gate_up_proj.chunk(2, dim=1)
        held = [self.share.columns(each.transpose(1, 2)).transpose(1, 2) for each in (gates, ups)]
        self.w13_weight = torch.cat(held, dim=1)
        self.w2_weight = self.share.columns(self.experts.down_proj)
        self.global_num_experts, _, self.hidden_size = self.w13_weight.shape
        self.top_k = 1
        self.moe_config = SimpleNamespace(hidden_dim_unpadded=self.hidden_size)

    @property
    def quant_method(self) -> "_Experts":
        return self

    def forward_modular(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        held = copy.copy(self.experts)
        held._parameters = {"gate_up_proj": self.w13_weight, "down_proj": self.w2_weight}
        return held(x, ids.long(), weights.to(self.dtype))


class _Model:
    """The modules and parameters of a held model that a worker has, by vLLM's names."""

    packed_modules_mapping = FUSED

    def __init__(self, held: HeldModel, share: Share) -> None:
        self.held, self.share, self.parameters = held, share, held.base.parameters

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        held, share = self.held, self.share
        routers = set(routers_of(held.base).values())
        for name, module in held.base.named_modules():
            if module is held.base.get_input_embeddings():
                yield name, _Vocabulary(held, module.get_parameter("weight"), False, share)
            if isinstance(getattr(module, "down_proj", None), nn.Parameter):
                yield f"{name}.routed_experts", _Experts(held.dtype, module, share)
            if module in routers:
                yield name, _Router(module.get_parameter("weight"))
        yield "lm_head", _Vocabulary(held, held.head.weight, True, share)
        yield "logits_processor", SimpleNamespace(**_stack_of_head(held))
        for name, parts in _fused_names(held.layers).items():
            base = self._layer(name, parts)
            if held.max_rank:
                yield name, SimpleNamespace(base_layer=base, quant_method=base, **_stacks(held, parts, base))
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
                yield f"{name}.bias", torch.cat(self._layer(name, parts).held(biases))

    def _layer(self, name: str, parts: Sequence[str]) -> _BaseLayer:
        copies = self.share.copies(self.held.base.config.num_key_value_heads)
        of_parts = [copies if part.endswith(("k_proj", "v_proj")) else 1 for part in parts]
        modules = [self.held.layers[part] for part in parts]
        return _BaseLayer(modules, self.share, of_parts, name.endswith(ROW_PARALLEL))


def _fused_names(layers: dict[str, nn.Linear]) -> dict[str, list[str]]:
    """Return the checkpoint's layers by vLLM's layer."""
    fused_by_part = {part: fused for fused, parts in FUSED.items() for part in parts}
    names: dict[str, list[str]] = {}
    for name in layers:
        if name != "lm_head":
            head, _, last = name.rpartition(".")
            names.setdefault(f"{head}.{fused_by_part.get(last, last)}", []).append(name)
    return names


def _stacks(held: HeldModel, parts: Sequence[str], base: _BaseLayer) -> dict[str, tuple[Tensor, ...]]:
    """Return the slots of the parts' adapters: A [1, 1, rank, inputs] and B [1, 1, outputs, rank]."""
    downs, ups = [], []
    for part in parts:
        layer = held.layers[part]
        down, up = held.slot.get(
            part, (torch.zeros(1, layer.in_features), torch.zeros(layer.out_features, 1))
        )
        downs.append(base.share.columns(down) if base.row_parallel else down)
        ups.append(up)
    return {
        "lora_a_stacked": tuple(down[None, None] for down in downs),
        "lora_b_stacked": tuple(up[None, None] for up in base.held(ups)),
    }


def _stack_of_head(held: HeldModel) -> dict[str, Tensor]:
    """Return the slot of the output head's adapter, which vLLM keeps in its logits processor."""
    vocabulary, width = held.head.weight.shape
    down, up = held.slot.get("lm_head", (torch.zeros(1, width), torch.zeros(vocabulary, 1)))
    return {"lora_a_stacked": down[None, None], "lora_b_stacked": up[None, None]}


class _Adapters:
    """The adapters of a held model, as vLLM numbers them: 0 is none."""

    lora_index_to_id = (1,)

    def __init__(self, held: HeldModel) -> None:
        self._held = held

    @property
    def _last_mapping(self) -> SimpleNamespace | None:
        last = self._held.last_scope
        return None if last is None else SimpleNamespace(prompt_mapping=(np.int64(bool(last.adapter)),))


class FakeWorker(TruingWorker):
    """The worker of the fake server: the methods that Truing calls are the real ones."""

    def __init__(self, held: HeldModel, number: int, options: Options, rank: int = 0) -> None:
        self.held, self.number, max_logprobs = held, number, options.max_logprobs
        share = Share(rank, options.workers)
        returns_routes = held.routed and options.returns_routes
        config = {"dtype": held.dtype, "logprobs_mode": "processed_logprobs", "generation_config": "vllm"}
        lora = SimpleNamespace(max_lora_rank=held.max_rank, max_loras=1, fully_sharded_loras=False)
        self.model_runner = SimpleNamespace(
            model_config=SimpleNamespace(**config, max_logprobs=max_logprobs, get_diff_sampling_param=dict),
            lora_config=lora if held.max_rank else None,
            parallel_config=SimpleNamespace(tensor_parallel_size=options.workers),
            get_model=lambda: _Model(held, share),
            device=torch.device("cuda"),  # a GPU build: its answers have routes if it is asked for them
            aux_output_connector=object() if returns_routes else None,
            lora_manager=SimpleNamespace(_adapter_manager=_Adapters(held)),
        )

    def truing_hello(self) -> dict[str, Any]:
        """Return what the worker is; its number in place of a process id, since it may run in a thread."""
        return super().truing_hello() | {"pid": self.number}

    def reload_weights(self, weights_path: str) -> None:
        """Replace the base model's weights."""
        self.held.reload_weights(Path(weights_path))
