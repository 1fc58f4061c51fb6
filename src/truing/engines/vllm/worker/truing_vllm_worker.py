"""What runs inside vLLM: probes that show which weights the engine computes with.

``vllm serve --worker-extension-cls truing_vllm_worker.TruingWorker`` adds these methods to each worker. Only
files that import nothing else of Truing's are in this folder, which is on vLLM's PYTHONPATH.

A linear layer is probed through its own kernel, since packed, fused or quantised weights cannot be read:
for a vector r of ±1, y = W r. Every element of W changes one element of y by its own change.
"""

import base64
import os
from collections.abc import Iterator
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
    from truing.engines.vllm.worker.truing_vllm_shards import INPUTS, WHOLE, division, inputs_here
else:
    from truing_vllm_experts import expert_layers, expert_responses, pack_experts, why_unproven
    from truing_vllm_routes import RouteRecorder
    from truing_vllm_shards import INPUTS, WHOLE, division, inputs_here

PROTOCOL = 7
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
            "defaults": config.get_diff_sampling_param(),
            "max_logprobs": config.max_logprobs,
            "experts": len(list(expert_layers(self.model_runner.get_model()))),
            "routes": bool(getattr(self.model_runner, "aux_output_connector", None)),
            "device": self.model_runner.device.type,
            "workers": self.model_runner.parallel_config.tensor_parallel_size,
            "asked": None if lora is None else _adapters_of_last_requests(self.model_runner),
            "lora": None
            if lora is None
            else {
                "max_rank": lora.max_lora_rank,
                "slots": lora.max_loras,
                "sharded": bool(lora.fully_sharded_loras),
            },
        }

    def truing_refresh_packed(self) -> dict[str, Any]:
        """Pack weights again that a reload leaves unpacked (experts) or old (a tied head)."""
        refreshed = pack_experts(self.model_runner.get_model())
        for name, module in self.model_runner.get_model().named_modules():
            pack = getattr(getattr(module, "quant_method", None), "process_weights_after_loading", None)
            if hasattr(module, "org_vocab_size") and pack is not None:
                pack(module)
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
    def truing_probe(
        self, seed: int, adapter: bool, base: bool, held: bool = False, layers: list[str] | None = None
    ) -> dict[str, Any]:
        """Return what this worker computes with, by the layer's name in vLLM.

        Args:
            seed: of the probe vectors.
            adapter: whether to probe the adapter that was loaded last.
            base: whether to probe the base model too.
            held: whether to read the weights themselves besides.
            layers: of the base model to probe, by their names in the answer; by default all. Its norms are
                probed in any case.

        Returns:
            ``linear``: per linear layer and output head, its names in the checkpoint (``parts``), W r through
            the kernel, and W r in float64 of the weight that it holds (``held``; "" if that cannot be read);
            ``tables``: per embedding, its rows times r; ``vectors``: per vector, its values;
            ``delta``: per adapted layer, its names, A r of each slice (``down``), and B (A r);
            ``experts``: per layer, the answers of its experts, or why they cannot be probed. Each has its
            ``values``, and the layer's ``division`` among workers.
        """
        model = self.model_runner.get_model()
        found: dict[str, dict[str, Any]] = {"linear": {}, "tables": {}, "vectors": {}}
        found["delta"] = self._probe_adapter(model, seed) if adapter else {}
        found["experts"] = self._probe_experts(model, seed, layers) if base else {}
        left_out = set()
        for name, module in _linear_layers(model) if base else ():
            if layers is None or name in layers:
                self._probe_layer(model, name, module, seed, held, found)
            else:
                left_out.add(name)
        for name, parameter in model.named_parameters() if base else ():
            plain = name.replace(".base_layer", "")
            if parameter.dim() == 1 and parameter.numel() and plain.rpartition(".")[0] not in left_out:
                layer = found["linear"].get(plain.rpartition(".")[0], {"division": WHOLE})
                # a bias is divided as the outputs are
                divided = layer["division"] if layer["division"] != INPUTS else WHOLE
                found["vectors"][plain] = {"values": _encoded(parameter), "division": divided}
        return found

    @property
    def _workers(self) -> int:
        return self.model_runner.parallel_config.tensor_parallel_size

    def _probe_layer(
        self, model: Any, name: str, module: Any, seed: int, held: bool, found: dict[str, dict[str, Any]]
    ) -> None:
        """Add the responses of a linear layer, an embedding or an output head."""
        packed, divided = getattr(model, "packed_modules_mapping", {}), division(module, self._workers)
        device, dtype = next(model.parameters()).device, self.model_runner.model_config.dtype
        r = inputs_here(module, probe_vector(_columns(module), seed)).to(device, dtype)
        values = module.quant_method.apply(module, r[None]).flatten()
        if hasattr(module, "org_vocab_size"):
            rows = _rows(module).to(device)
            values = values[: len(rows)]  # others are padding
            table = torch.cat([module.quant_method.embedding(module, ids) @ r for ids in rows.split(8192)])
            found["tables"][name] = {"values": _encoded(table), "division": divided}
        exact = _encoded(_held(module, r)[: len(values)]) if held and _is_readable(module, dtype) else ""
        layer = {"parts": _part_names(name, packed), "values": _encoded(values), "held": exact}
        found["linear"][name] = layer | {"division": divided}

    def _probe_adapter(self, model: Any, seed: int) -> dict[str, Any]:
        """Return the responses of the adapter that was loaded last."""
        packed, slot = getattr(model, "packed_modules_mapping", {}), _newest_slot(self.model_runner)
        found: dict[str, Any] = {}
        if slot is None:
            return found
        for name, module in model.named_modules():
            if stacks := _slices(name, module):
                layer, parts = getattr(module, "base_layer", None), _adapted_names(name, packed)
                down, values = _delta(stacks, slot, layer, seed)
                divided = division(layer, self._workers)
                found[name] = {"parts": parts, "down": down, "values": values, "division": divided}
        return found

    def _probe_experts(self, model: Any, seed: int, layers: list[str] | None) -> dict[str, Any]:
        """Return the answers of experts, of whose inner width each worker holds a part."""
        found, dtype = {}, self.model_runner.model_config.dtype
        divided = WHOLE if self._workers == 1 else INPUTS
        for name, layer in expert_layers(model):
            if layers is not None and name not in layers:
                continue
            r = probe_vector(_width(layer), seed).to(layer.w13_weight.device, dtype)
            why = why_unproven(layer)
            values = "" if why else _encoded(expert_responses(layer, r))
            found[name] = {"values": values, "why": why, "division": divided}
        return found


def _linear_layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield linear layers, embeddings and the output head, by name."""
    for name, module in model.named_modules():
        if hasattr(getattr(module, "quant_method", None), "apply") and not (
            hasattr(module, "base_layer")  # a layer with adapters: its base layer comes by itself
            or hasattr(module, "w13_weight")  # experts
        ):
            yield name.removesuffix(".base_layer"), module


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


def _rows(module: Any) -> torch.Tensor:
    """Return the rows of an embedding that this worker holds, by their place in it."""
    held = getattr(module, "shard_indices", None)
    return torch.arange(module.org_vocab_size if held is None else held.num_org_elements)


def _is_readable(module: Any, dtype: torch.dtype) -> bool:
    """Return whether a layer holds its weight as a plain matrix, neither packed nor quantised."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 2 and weight.dtype == dtype


def _held(module: Any, r: torch.Tensor) -> torch.Tensor:
    """Return the responses of a weight itself: [outputs] float64, some rows at a time."""
    return torch.cat([rows.double() @ r.double() for rows in module.weight.split(8192)])


def _newest_slot(runner: Any) -> int | None:
    """Return where the engine holds the adapter that was loaded last; None if it holds none."""
    ids = runner.lora_manager._adapter_manager.lora_index_to_id
    held = [lora_id for lora_id in ids if lora_id is not None]
    return ids.index(max(held)) if held else None


def _adapters_of_last_requests(runner: Any) -> list[int] | None:
    """Return the adapters in the last step, by id, 0 of requests without; None if vLLM does not say."""
    mapping = getattr(runner.lora_manager._adapter_manager, "_last_mapping", None)
    return None if mapping is None else sorted({int(each) for each in mapping.prompt_mapping})


def _adapted_names(name: str, packed: dict[str, list[str]]) -> list[str]:
    """Return the names of an adapted layer in the checkpoint; vLLM's logits processor adapts the head."""
    return _part_names(name.replace("logits_processor", "lm_head"), packed)


def _slices(name: str, module: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return A [slots, 1, rank, inputs] and B [slots, 1, outputs, rank] of each slice of a layer."""
    a = getattr(module, "lora_a_stacked", None)
    if isinstance(a, tuple):
        return list(zip(a, module.lora_b_stacked, strict=True))
    return [(a, module.lora_b_stacked)] if name.endswith("logits_processor") and a is not None else []


def _delta(
    stacks: list[tuple[torch.Tensor, torch.Tensor]], slot: int, layer: Any, seed: int
) -> tuple[list[str], str]:
    """Return A r of each slice of a layer's adapter, and B (A r) of all [outputs], in float64."""
    parts, responses = [], []
    for a, b in stacks:
        down, up = a[slot, 0].double(), b[slot, 0].double()
        inputs = getattr(layer, "input_size", down.shape[1])
        response = down @ inputs_here(layer, probe_vector(inputs, seed)).to(down)
        responses.append(_encoded(response))
        parts.append(up @ response)
    return responses, _encoded(torch.cat(parts))


def _encoded(values: torch.Tensor) -> str:
    """Return values as base64 of little-endian float64."""
    return base64.b64encode(values.detach().double().cpu().contiguous().numpy().tobytes()).decode()
