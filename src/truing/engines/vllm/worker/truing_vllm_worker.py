"""What runs inside vLLM: probes that show which weights the engine computes with.

``vllm serve --worker-extension-cls truing_vllm_worker.TruingWorker`` adds these methods to each worker. Only
files that import nothing else of Truing's are in this folder, which is on vLLM's PYTHONPATH.

A linear layer is probed through its own kernel, since packed, fused or quantised weights cannot be read:
for a vector r of ±1, y = W r. Every element of W changes one element of y by its own change.
"""

import base64
import os
from typing import Any

import torch

if __package__:  # in Truing's tests; inside vLLM the files are modules of their own
    from truing.engines.vllm.worker.truing_vllm_experts import (
        expert_layers,
        expert_responses,
        pack_experts,
        why_unproven,
    )
    from truing.engines.vllm.worker.truing_vllm_routes import RouteRecorder
else:
    from truing_vllm_experts import expert_layers, expert_responses, pack_experts, why_unproven
    from truing_vllm_routes import RouteRecorder

PROTOCOL = 3
"""Version of the answers; the trainer refuses another one."""

MULTIPLIER, SHIFT = 2654435761, 13
"""Knuth's multiplicative hash spreads the indices of a probe vector over its signs."""


def probe_vector(length: int, seed: int) -> torch.Tensor:
    """Return a vector [length] of ±1, float32; equal on every machine, and exact in every dtype."""
    index = (torch.arange(length, dtype=torch.int64) + 1 + 7919 * seed) * MULTIPLIER
    return (((index >> SHIFT) ^ (index >> 2 * SHIFT)) & 1).float() * 2 - 1


class TruingWorker:
    """Methods that Truing calls by ``collective_rpc``."""

    model_runner: Any  # vLLM's
    _routes: RouteRecorder | None = None

    def truing_hello(self) -> dict[str, Any]:
        """Return what the worker is."""
        config, lora = self.model_runner.model_config, self.model_runner.lora_config
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "dtype": str(config.dtype).removeprefix("torch."),
            "logprobs_mode": str(config.logprobs_mode),
            "generation_config": config.generation_config,
            "max_logprobs": config.max_logprobs,
            "experts": len(list(expert_layers(self.model_runner.get_model()))),
            "routes": bool(getattr(self.model_runner, "aux_output_connector", None)),
            "device": self.model_runner.device.type,
            "lora": None if lora is None else {"max_rank": lora.max_lora_rank, "slots": lora.max_loras},
        }

    def truing_refresh_packed(self) -> dict[str, Any]:
        """Pack weights again that a reload leaves unpacked (experts) or old (a tied head)."""
        refreshed = pack_experts(self.model_runner.get_model())
        for name, module in self.model_runner.get_model().named_modules():
            method = getattr(module, "quant_method", None)
            if hasattr(module, "org_vocab_size") and hasattr(method, "process_weights_after_loading"):
                method.process_weights_after_loading(module)
                refreshed.append(name)
        return {"refreshed": refreshed}

    def truing_record_routes(self) -> dict[str, Any]:
        """Record the experts that tokens take from now on, where the server itself returns none."""
        if self._routes is None:
            self._routes = RouteRecorder(self.model_runner)
        return {"layers": self._routes.layers}

    def truing_take_routes(self, request_id: str) -> dict[str, Any]:
        """Return the routes of a request that has ended, in vLLM's form."""
        assert self._routes is not None
        return {"routed_experts": self._routes.take(request_id)}

    @torch.inference_mode()
    def truing_probe(self, seed: int, adapter: bool, base: bool) -> dict[str, Any]:
        """Return what the model computes with, by the layer's name in vLLM.

        Args:
            seed: of the probe vectors.
            adapter: whether to probe the adapter that was loaded last.
            base: whether to probe the base model too.

        Returns:
            ``linear``: per linear layer and output head, its names in the checkpoint and W r;
            ``tables``: per embedding, its rows times r; ``vectors``: per vector, its values;
            ``delta``: per adapted layer, its names, A r of each slice, and B (A r); ``experts``: per layer,
            the answers of its experts, and why they cannot be probed.
        """
        runner = self.model_runner
        model, dtype = runner.get_model(), runner.model_config.dtype
        packed = getattr(model, "packed_modules_mapping", {})
        slot = _newest_slot(runner) if adapter else None
        found: dict[str, dict[str, Any]] = {
            "linear": {},
            "tables": {},
            "vectors": {},
            "delta": {},
            "experts": {},
        }
        for name, layer in expert_layers(model) if base else ():
            r = probe_vector(_width(layer), seed).to(layer.w13_weight.device, dtype)
            why = why_unproven(layer)
            found["experts"][name] = "" if why else _encoded(expert_responses(layer, r)), why
        for name, module in model.named_modules():
            own, method = name.removesuffix(".base_layer"), getattr(module, "quant_method", None)
            if slot is not None and (stacks := _slices(name, module)):
                found["delta"][name] = (_adapted_names(name, packed), *_delta(stacks, slot, seed))
            if not base or hasattr(module, "base_layer") or not hasattr(method, "apply"):
                continue  # a layer with adapters: its base layer comes by itself
            if hasattr(module, "w13_weight"):
                continue  # experts
            r = probe_vector(_columns(module), seed).to(next(model.parameters()).device, dtype)
            found["linear"][own] = _part_names(own, packed), _encoded(method.apply(module, r[None]).flatten())
            if hasattr(module, "org_vocab_size"):
                found["tables"][own] = _encoded(_rows(module, r))
        for name, parameter in model.named_parameters():
            if base and parameter.dim() == 1 and parameter.numel():
                found["vectors"][name.replace(".base_layer", "")] = _encoded(parameter)
        return found


def _part_names(name: str, packed: dict[str, list[str]]) -> list[str]:
    """Return the names that a fused layer has in the checkpoint."""
    head, _, last = name.rpartition(".")
    return [f"{head}.{part}" if head else part for part in packed.get(last, [last])]


def _columns(module: Any) -> int:
    """Return the inputs of a linear layer or an embedding."""
    return module.embedding_dim if hasattr(module, "embedding_dim") else module.input_size


def _width(layer: Any) -> int:
    """Return the inputs of experts, without those that a kernel adds."""
    return layer.moe_config.hidden_dim_unpadded or layer.hidden_size


def _rows(module: Any, r: torch.Tensor) -> torch.Tensor:
    """Return the table of an embedding times r, from the rows that it looks up."""
    ids = torch.arange(module.org_vocab_size, device=r.device)
    return torch.cat([module.quant_method.embedding(module, part) @ r for part in ids.split(8192)])


def _newest_slot(runner: Any) -> int | None:
    """Return where the engine holds the adapter that was loaded last; None if it holds none."""
    ids = runner.lora_manager._adapter_manager.lora_index_to_id
    held = [lora_id for lora_id in ids if lora_id is not None]
    return ids.index(max(held)) if held else None


def _adapted_names(name: str, packed: dict[str, list[str]]) -> list[str]:
    """Return the names of an adapted layer in the checkpoint; vLLM's logits processor adapts the head."""
    return _part_names(name.replace("logits_processor", "lm_head"), packed)


def _slices(name: str, module: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return A [slots, 1, rank, inputs] and B [slots, 1, outputs, rank] of each slice of a layer."""
    a, b = getattr(module, "lora_a_stacked", None), getattr(module, "lora_b_stacked", None)
    if isinstance(a, tuple):
        return list(zip(a, b, strict=True))
    return [(a, b)] if name.endswith("logits_processor") and a is not None else []


def _delta(stacks: list[tuple[torch.Tensor, torch.Tensor]], slot: int, seed: int) -> tuple[list[str], str]:
    """Return A r of each slice of a layer's adapter, and B (A r) of all [outputs], in float64."""
    parts, responses = [], []
    for a, b in stacks:
        down, up = a[slot, 0].double(), b[slot, 0].double()
        response = down @ probe_vector(down.shape[1], seed).to(down)
        responses.append(_encoded(response))
        parts.append(up @ response)
    return responses, _encoded(torch.cat(parts))


def _encoded(values: torch.Tensor) -> str:
    """Return values as base64 of little-endian float64."""
    return base64.b64encode(values.detach().double().cpu().contiguous().numpy().tobytes()).decode()
