"""Linear layers whose products oneDNN computes.

On a CPU torch gives fp32 products to MKL, which uses less than half of what some CPUs can do (195 of 435
GFLOP/s on two cores of an AMD EPYC). oneDNN comes with torch, which asks it for other things only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class OneDnnLinear(nn.Linear):
    """A linear layer in all but who computes it. Other dtypes and devices are left to torch."""

    def forward(self, input: Tensor) -> Tensor:
        """The product x Wᵀ + b, with gradients."""
        mine = input.device.type == "cpu" and input.dtype == self.weight.dtype == torch.float32
        if not mine or not input.numel():
            return super().forward(input)
        if not torch.is_grad_enabled():
            return _product(input, self.weight, self.bias)
        return _Linear.apply(input, self.weight, self.bias)


def use_onednn(model: nn.Module) -> None:
    """Let oneDNN compute the linear layers of a model, where torch was built with it."""
    if not torch.backends.mkldnn.is_available():
        return
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = OneDnnLinear


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b for x [..., in], W [out, in], b [out]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Only what is asked for: a frozen weight has no gradient."""
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        grad_NO, x_NI = grad.reshape(-1, weight.shape[0]), x.reshape(-1, weight.shape[1])
        return (
            _product(grad, weight.t()) if wants_x else None,
            _product(grad_NO.t(), x_NI.t()) if wants_weight else None,
            grad_NO.sum(0) if wants_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Of x [..., in] and a weight [out, in] of any strides: [..., out]."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
