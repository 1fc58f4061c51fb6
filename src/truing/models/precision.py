"""Copies of a model: with its weights in another dtype, or with the same weights."""

import copy

import torch
from torch import Tensor, nn

from truing.distributed.sharded_tensors import whole
from truing.models.quantized_linear import dequantize_layers


def with_weights_in(
    dtype: torch.dtype | None,
    policy: nn.Module,
    device: torch.device | None = None,
    *,
    share_frozen: bool = False,
) -> nn.Module:
    """Return a copy of a model with whole weights in ``dtype``; they are trained as the model's own are.

    Without ``dtype`` each weight has its own, and without ``device`` it stays where it is. All ranks that
    hold parts of the weights call this together; on the device of the parts one weight at a time is whole.
    With ``share_frozen`` frozen weights that are already so on this rank are the model's own, and nobody may
    change them.

    Buffers keep their dtype: positions in bfloat16 would be wrong beyond 256 tokens. Quantized layers become
    plain ones if there is a ``dtype``.
    """
    weights = {
        id(weight): nn.Parameter(
            whole(weight.detach()).to(
                device or weight.device,
                _dtype_of_copy(weight, dtype),
                copy=weight.requires_grad or not share_frozen,
            ),
            requires_grad=weight.requires_grad,
        )
        for weight in policy.parameters()
    }
    copied = copy.deepcopy(policy, weights).to(device)
    if dtype is not None:
        dequantize_layers(copied, dtype)
    return copied


def _dtype_of_copy(weight: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return the dtype of a copied weight; packed ones stay as they are."""
    return dtype if dtype is not None and weight.is_floating_point() else weight.dtype


def sharing_weights(policy: nn.Module) -> nn.Module:
    """Return a copy of a model with parameters of its own on the same memory."""
    weights = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)
        for weight in policy.parameters()
    }
    return copy.deepcopy(policy, weights)
