"""Weight sync: from the policy's weights to the sampler's.

Without an adapter they are one model. With an adapter the sampler holds a merged copy, computed from
base + adapter at each sync. Nothing is merged in place, so no rounding reaches the base.
"""

import copy

import torch
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import PreTrainedModel

from truing.errors import NonFiniteError
from truing.models.finite_check import check_finite
from truing.models.forward.score import causal_model


def sampler_copy(policy: nn.Module) -> PreTrainedModel:
    """Return the model to sample from: the policy itself, or with an adapter a plain copy of its base."""
    if not _adapted(policy):
        return causal_model(policy)
    causal, adapted = causal_model(policy), _adapted(policy)
    merged = {id(layer.get_base_layer().weight) for layer in adapted.values()}
    shared = {  # a weight without an adapter never changes
        id(weight): nn.Parameter(weight.detach(), requires_grad=False)
        for weight in causal.parameters()
        if id(weight) not in merged
    }
    plain = copy.deepcopy(causal, shared)
    for name, layer in _adapted(plain).items():
        plain.set_submodule(name, layer.get_base_layer())
    return plain.requires_grad_(False)


@torch.no_grad()
def sync_weights(policy: nn.Module, sampler_model: PreTrainedModel) -> None:
    """Merge the policy's adapter into the sampler's weights; without an adapter they are one object.

    Raises:
        NonFiniteError: A weight is NaN or infinite.
    """
    adapted = _adapted(policy)
    for name, layer in adapted.items():
        merged = layer.get_base_layer().weight.clone()
        for adapter in layer.active_adapters:
            merged += layer.get_delta_weight(adapter)
        sampler_model.get_submodule(name).weight.copy_(merged)
    synced = {f"{name}.weight": sampler_model.get_submodule(name).weight for name in adapted}
    check_finite(
        synced or {name: weight for name, weight in policy.named_parameters() if weight.requires_grad},
        "the weights to sample from are not finite",
        "the policy",
        remedy="the last update diverged: lower the learning rate; [guard] restores an earlier state",
        error=NonFiniteError,
    )


def _adapted(policy: nn.Module) -> dict[str, LoraLayer]:
    """Return the adapted layers by their name in the plain model."""
    modules = causal_model(policy).named_modules()
    return {name: module for name, module in modules if isinstance(module, LoraLayer)}
