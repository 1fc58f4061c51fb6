"""Copies of a model: with its weights in another dtype, or with the same weights."""

import copy

import torch
from torch import nn


def with_weights_in(dtype: torch.dtype, policy: nn.Module) -> nn.Module:
    """Return a copy of a model with all weights in ``dtype``; they are trained as the model's own are.

    Buffers keep their dtype: positions in bfloat16 would be wrong beyond 256 tokens.
    """
    weights = {
        id(weight): nn.Parameter(weight.detach().to(dtype, copy=True), requires_grad=weight.requires_grad)
        for weight in policy.parameters()
    }
    return copy.deepcopy(policy, weights)


def sharing_weights(policy: nn.Module) -> nn.Module:
    """Return a copy of a model with parameters of its own on the same memory."""
    weights = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)
        for weight in policy.parameters()
    }
    return copy.deepcopy(policy, weights)
