"""The weights that the fake server computes with: a base model, its packed output head, and adapters.

As in vLLM's CPU build, the output head is packed once, and a reload leaves its packed copy as it was.
"""

import json
import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from truing.models.forward.expert_routes import record_routes, routers_of
from truing.models.progress_bars import no_progress_bars

Adapter = Mapping[str, tuple[Tensor, Tensor]]
"""By layer of the plain model: A [rank, inputs], and scaled B [outputs, rank]."""

BLOCK = 16
"""Tokens of a block of the prefix cache."""


class Prefix(NamedTuple):
    """Keys and values of a prefix, by layer, and the experts that its tokens took."""

    layers: Sequence[tuple[Tensor, Tensor]] = ()
    routes: Tensor | None = None


def read_base(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Return the model in a folder."""
    with no_progress_bars():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=False).eval()


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder."""
    return {
        name: value
        for file in sorted(folder.glob("*.safetensors"))
        for name, value in load_file(file).items()
    }


def read_adapter(folder: Path, dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the adapter in a folder that peft wrote."""
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    tensors, rank = read_weights(folder), config["r"]
    scale = config["lora_alpha"] / (math.sqrt(rank) if config["use_rslora"] else rank)
    layers = {}
    for name, down in tensors.items():
        if ".lora_A." in name:
            layer = name.removeprefix("base_model.model.").partition(".lora_A.")[0]
            layers[layer] = down.to(dtype), tensors[name.replace(".lora_A.", ".lora_B.")].to(dtype) * scale
    return layers


class Scope(NamedTuple):
    """What requests of equal ids must share to share cached keys and values."""

    adapter: str  # its name; "" is the base model
    salt: str


class RoutedCache(DynamicCache):
    """Keys and values of tokens, and the experts that they took: [T, layers, K]."""

    routes: Tensor | None = None

    def add_routes(self, routes: Tensor | None) -> None:
        """Append the routes of further tokens."""
        if routes is not None:
            self.routes = routes if self.routes is None else torch.cat([self.routes, routes])


class HeldModel:
    """A base model with one slot for an adapter, and keys and values of prompts."""

    def __init__(self, folder: Path, dtype: torch.dtype, max_rank: int) -> None:
        self.base, self.dtype, self.max_rank = read_base(folder, dtype), dtype, max_rank
        self.layers = {n: m for n, m in self.base.named_modules() if isinstance(m, nn.Linear)}
        head = self.base.get_output_embeddings()
        assert isinstance(head, nn.Linear)
        self.head = head
        self.packed_head = self.head.weight.detach().clone()
        self.routed = bool(routers_of(self.base))
        self.slot: Adapter = {}  # of the adapter that was loaded last
        self.last_scope: Scope | None = None  # of the request that was computed last
        self._lock = threading.Lock()  # one forward at a time
        self._active: Adapter = {}  # of the forward
        self._prefixes: dict[tuple[object, ...], Prefix] = {}
        for name, layer in self.layers.items():
            layer.register_forward_hook(partial(self._add_adapter, name))

    def load_adapter(self, folder: Path) -> None:
        """Load an adapter into the slot; raise ValueError if it does not fit the model."""
        adapter = read_adapter(folder, self.dtype)
        for name, (down, up) in adapter.items():
            shape = (up.shape[0], down.shape[1])
            if len(down) > self.max_rank:
                raise ValueError(f"LoRA rank {len(down)} is greater than max_lora_rank {self.max_rank}")
            if name not in self.layers or self.layers[name].weight.shape != shape:
                raise ValueError(f"adapter of {name} {shape} does not fit the model")
        self.slot = adapter

    @torch.no_grad()
    def reload_weights(self, folder: Path) -> None:
        """Replace the base model's weights; the packed head stays, if it is tied to the embedding."""
        weights, held = read_weights(folder), self.base.state_dict()
        names = weights.keys()
        if names - held.keys():  # experts are apart in a checkpoint
            weights = read_base(folder, self.dtype).state_dict()
        with self._lock:
            for name, weight in weights.items():
                held[name].copy_(weight)
        if "lm_head.weight" in names:
            self.refresh_packed()

    def refresh_packed(self) -> None:
        """Pack the output head again."""
        self.packed_head = self.head.weight.detach().clone()

    def adapter(self) -> Adapter:
        """Return the adapter that requests to it compute with."""
        return self.slot

    def drop_prefixes(self) -> None:
        """Drop keys and values of prompts."""
        self._prefixes = {}

    @torch.inference_mode()
    def prefill(
        self, ids: Sequence[int], scope: Scope, *, cached: bool = True
    ) -> tuple[Tensor, "RoutedCache"]:
        """Return the logits after each token of a prompt that is not cached, and all its keys and values."""
        start = (len(ids) - 1) // BLOCK * BLOCK if cached else 0
        while start and (*scope, *ids[:start]) not in self._prefixes:
            start -= BLOCK
        cache, prefix = RoutedCache(), self._prefixes.get((*scope, *ids[:start]), Prefix())
        for layer, (keys, values) in enumerate(prefix.layers):
            cache.update(keys, values, layer)
        cache.add_routes(prefix.routes)
        logits = self.forward(ids[start:], scope, cache)
        if cached:
            held: Any = cache.layers  # each has keys and values: the cache is filled
            for end in range(start + BLOCK, len(ids) + 1, BLOCK):
                layers = [
                    (layer.keys[:, :, :end].clone(), layer.values[:, :, :end].clone()) for layer in held
                ]
                routes = cache.routes
                self._prefixes[(*scope, *ids[:end])] = Prefix(
                    layers, None if routes is None else routes[:end]
                )
        return logits, cache

    @torch.inference_mode()
    def forward(self, ids: Sequence[int], scope: Scope, cache: "RoutedCache") -> Tensor:
        """Return the logits after each token: [T, V] float32; the cache grows by these tokens."""
        with self._lock:
            self._active, self.last_scope = (self.adapter() if scope.adapter else {}), scope
            with record_routes(self.base) as recorded, self.routing(len(ids), cache):
                # by position: transformers 5.24 has another name for the cache
                decode = self.base.base_model
                hidden = decode(torch.tensor([ids]), None, None, cache, use_cache=True).last_hidden_state
                cache.add_routes(recorded() if self.routed else None)
            logits = functional.linear(hidden, self.packed_head, self.head.bias)
            return self._add_adapter("lm_head", self.head, (hidden,), logits)[0].float()

    def routing(self, tokens: int, cache: RoutedCache) -> AbstractContextManager[None]:
        """Return how the routers of a forward of ``tokens`` after ``cache`` select: by themselves."""
        return nullcontext()

    def _add_adapter(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if name not in self._active:
            return output
        down, up = self._active[name]
        return output + inputs[0] @ down.T @ up.T
