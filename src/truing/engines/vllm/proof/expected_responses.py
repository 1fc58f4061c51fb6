"""What a correct engine answers to a probe: the trainer's weights times a vector, in float64."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from truing.engines.vllm.proof.changed_weights import Cast
from truing.engines.vllm.proof.expected_experts import expert_modules, expert_response
from truing.engines.vllm.worker.truing_vllm_worker import probe_vector
from truing.models.forward.score import causal_model
from truing.models.lora import adapted_layers

Responses = Mapping[str, tuple[Tensor, Tensor]]
"""By layer in the checkpoint: W r and Σ|W|, both [outputs]; of an adapter B (A r) and |B| |A r|."""


@dataclass(frozen=True)
class Expected:
    """The trainer's responses; ``tied`` are layers whose weight another layer holds."""

    linear: Responses = field(default_factory=dict)
    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    experts: Responses = field(default_factory=dict)  # by layer, of all its experts
    tied: frozenset[str] = frozenset()
    down: Responses = field(default_factory=dict)  # A r of adapted layers
    delta: Responses = field(default_factory=dict)  # B (A r), with alpha / rank


@torch.no_grad()
def expected_responses(policy: nn.Module, cast: Cast, seed: int, base: Expected | None) -> Expected:
    """Return what a correct engine answers, its weights in a format; ``base`` is known if frozen."""
    down, delta = {}, {}
    for name, layer in adapted_layers(policy).items():
        scale = layer.scaling["default"]
        a = cast(layer.lora_A["default"].weight.detach().cpu()).double()
        b = (cast(layer.lora_B["default"].weight.detach().cpu()) * scale).double()
        response = a @ probe_vector(a.shape[1], seed).double()
        down[name] = response, a.abs().sum(1)
        delta[name] = b @ response, b.abs() @ response.abs()
    return replace(base or _base_responses(policy, cast, seed), down=down, delta=delta)


def _base_responses(policy: nn.Module, cast: Cast, seed: int) -> Expected:
    """Return the responses of all weights but the adapter's."""
    model = causal_model(policy)
    linear, vectors = {}, {}
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            continue
        weight = cast(parameter.detach().cpu()).double()
        plain = name.replace(".base_layer", "")
        if weight.dim() == 1:
            vectors[plain] = weight
        elif weight.dim() == 2:
            response = weight @ probe_vector(weight.shape[1], seed).double()
            linear[plain.removesuffix(".weight")] = response, weight.abs().sum(1)
    tied = {
        name.removesuffix(".weight"): held.removesuffix(".weight")
        for name, held in model.all_tied_weights_keys.items()
    }
    linear |= {name: linear[held] for name, held in tied.items() if held in linear}
    experts = {name: expert_response(module, cast, seed) for name, module in expert_modules(model)}
    return Expected(linear, vectors, experts, frozenset(tied))
