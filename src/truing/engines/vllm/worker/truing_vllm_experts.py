"""Mixtures of experts inside vLLM: what their experts compute, and which of them tokens take.

An expert is probed through its layer's own kernel: the tokens r and −r of ±1 are sent to it alone. The sum of
the two answers is W₂ ((W₁ r) · (W₃ r)) for every activation a with a(x) − a(−x) = x, so that a change of any
element shows, also where one of the two tokens leaves the activation flat.
"""

from collections.abc import Iterator
from typing import Any

import torch


def expert_layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers with routed experts, by their names in the checkpoint."""
    for name, module in model.named_modules():
        if hasattr(module, "w13_weight") and hasattr(module, "forward_modular"):
            yield name.removesuffix(".routed_experts").replace(".base_layer", ""), module


def why_unproven(layer: Any) -> str:
    """Return why tokens cannot be sent to chosen experts of a layer; "" if they can."""
    if layer.quant_method.is_monolithic:
        kernel = getattr(getattr(layer.quant_method, "moe_kernel", None), "impl", layer.quant_method)
        return f"its kernel selects experts by itself ({type(kernel).__name__})"
    if layer.expert_map is not None:
        return "its experts are spread over workers"
    return ""


def expert_responses(layer: Any, r: torch.Tensor) -> torch.Tensor:
    """Return each expert's answers to r [inputs] and to −r, summed: [experts · inputs] float64."""
    experts, chosen, width = layer.global_num_experts, layer.top_k, len(r)
    padded = torch.nn.functional.pad(r, (0, layer.hidden_size - width))
    tokens = torch.stack([padded, -padded]).repeat(experts, 1)
    of_token = torch.arange(experts, device=r.device).repeat_interleave(2)
    ids = (of_token[:, None] + torch.arange(chosen, device=r.device)) % experts
    weights = torch.zeros(ids.shape, dtype=torch.float32, device=r.device)
    weights[:, 0] = 1.0  # the others compute too, and count nothing
    dtype = getattr(layer.quant_method, "topk_indices_dtype", None) or torch.int32
    answers = layer.forward_modular(tokens, weights, ids.to(dtype))
    return answers[:, :width].double().view(experts, 2, width).sum(1).flatten()


def pack_experts(model: Any) -> list[str]:
    """Pack experts again: a reload writes plain weights over the packed ones and leaves them so.

    vLLM 0.32 packs the experts of its CPU build only when the first weights are loaded.
    """
    packed = []
    for name, layer in expert_layers(model):
        kernel = getattr(layer.quant_method, "moe_kernel", None)
        pack = getattr(getattr(kernel, "fused_experts", None), "process_weights_after_loading", None)
        if layer.w13_weight.device.type == "cpu" and pack is not None:
            pack(layer)
            packed.append(name)
    return packed
