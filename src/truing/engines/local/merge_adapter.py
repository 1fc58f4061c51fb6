"""Weight sync: from the policy's weights to the sampler's.

Without an adapter they are one model. With an adapter on a float32 base the sampler holds a merged copy,
computed from base + adapter at each sync. Nothing is merged in place, so no rounding reaches the base. With
an adapter on a base in bfloat16 they are one model again, and the adapter computes beside the base: merged,
it would be rounded away.
"""

import copy
from typing import cast

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.errors import NonFiniteError
from truing.models.finite_check import check_finite
from truing.models.forward.score import causal_model
from truing.models.lora import adapted_layers

MERGED_ITEMSIZE = 4
"""Bytes per weight from which an adapter can be merged without being rounded away."""


def sampler_copy(policy: nn.Module) -> PreTrainedModel:
    """Return the model to sample from: the policy itself, or a plain copy of a float32 base to merge."""
    causal, lora_layers = causal_model(policy), adapted_layers(policy)
    if any(_weight(layer.get_base_layer()).itemsize < MERGED_ITEMSIZE for layer in lora_layers.values()):
        return causal
    if not lora_layers:
        return causal
    merged_ids = {id(_weight(layer.get_base_layer())) for layer in lora_layers.values()}
    shared_weights = {  # a weight without an adapter never changes
        id(weight): nn.Parameter(weight.detach(), requires_grad=False)
        for weight in causal.parameters()
        if id(weight) not in merged_ids
    }
    plain = copy.deepcopy(causal, shared_weights)
    for name, layer in adapted_layers(plain).items():
        plain.set_submodule(name, layer.get_base_layer())
    return plain.requires_grad_(False)


def _weight(layer: nn.Module) -> Tensor:
    """Return the weight of a linear layer, which torch types as any attribute of a module."""
    return cast("Tensor", layer.weight)


@torch.no_grad()
def sync_weights(policy: nn.Module, sampler_model: PreTrainedModel) -> None:
    """Merge the policy's adapter into the sampler's weights, unless they are one object.

    Raises:
        NonFiniteError: A weight is NaN or infinite.
    """
    lora_layers = {} if sampler_model is causal_model(policy) else adapted_layers(policy)
    for name, layer in lora_layers.items():
        merged_weight = _weight(sampler_model.get_submodule(name))
        merged_weight.copy_(_weight(layer.get_base_layer()))
        for adapter in layer.active_adapters:
            merged_weight += cast("LoraLinear", layer).get_delta_weight(adapter)
    weights = {f"{name}.weight": _weight(sampler_model.get_submodule(name)) for name in lora_layers}
    check_finite(
        weights or {name: weight for name, weight in policy.named_parameters() if weight.requires_grad},
        "the weights to sample from are not finite",
        "the policy",
        remedy="the last step diverged: lower the learning rate; [guard] restores an earlier state",
        error=NonFiniteError,
    )
