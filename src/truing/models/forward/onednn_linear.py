"""Linear layers computed by oneDNN."""

import os
from typing import Any, Protocol

import torch
from peft.tuners import lora
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from truing.models.forward.fused_lora import FusedLora
from truing.models.forward.onednn_product import linear_product, no_view, onednn_computes

CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
"""Environment variables: how many products torch and oneDNN keep prepared, one per shape; else 1,024."""

PREPARED = 128
"""A pass has some 50 shapes. One takes half a megabyte, and each step brings new ones."""


class PackedWeight(Protocol):
    """A copy of a layer's weight in a layout that is faster to read."""

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """Return the layer's output for x [..., in]."""
        ...


class OneDnnLinear(nn.Linear):
    """A linear layer computed by oneDNN; torch computes other dtypes and devices."""

    packed: PackedWeight | None = None  # set within ``packed_weights``
    returns_float32 = False  # also for bfloat16

    def forward(self, input: Tensor) -> Tensor:
        """Return x Wᵀ + b, with gradients."""
        if not onednn_computes(input, self.weight):
            return super().forward(input)
        if torch.is_grad_enabled():
            return _Linear.apply(input, self.weight, self.bias)
        single_row = input.numel() == self.in_features  # another kernel, with other rounding
        if single_row or self.packed is None:
            return linear_product(input.contiguous(), self.weight, self.bias)
        return self.packed.product(self, input)


def use_onednn(model: nn.Module) -> None:
    """Let oneDNN compute the linear layers of a model, if torch has it, and fuse those with an adapter."""
    if not torch.backends.mkldnn.is_available():
        return
    for variable in CACHES:  # read at the first product
        os.environ.setdefault(variable, str(PREPARED))
    replacements = {nn.Linear: OneDnnLinear, lora.Linear: FusedLora}
    for module in model.modules():
        if type(module) in replacements:
            module.__class__ = replacements[type(module)]


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b for x [..., in], W [out, in], b [out]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        return no_view(linear_product(x, weight, bias))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Compute the needed gradients only: a frozen weight has none."""
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        grad = grad.contiguous()
        grad_NO, x_NI = grad.view(-1, weight.shape[0]), x.view(-1, weight.shape[1])
        return (
            linear_product(grad, weight.t()) if wants_x else None,
            linear_product(grad_NO.t(), x_NI.t()) if wants_weight else None,
            grad_NO.sum(0) if wants_bias else None,
        )
