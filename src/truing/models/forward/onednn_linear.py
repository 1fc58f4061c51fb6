"""Linear layers computed by oneDNN, plain and with an adapter.

On a CPU torch computes fp32 products with MKL, which reaches less than half the speed of some CPUs. oneDNN
comes with torch, which does not use it for these products.
"""

import os
from typing import Any, Protocol

import torch
from peft.tuners import lora
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
"""Environment variables: how many products torch and oneDNN keep prepared, one per shape; else 1,024."""

PREPARED = 128
"""A pass has some 50 shapes. One takes half a megabyte, and each update brings new ones."""


class PackedWeight(Protocol):
    """A copy of a layer's weight in a layout that is faster to read."""

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """Return the layer's output for x [..., in]."""
        ...


class OneDnnLinear(nn.Linear):
    """A linear layer computed by oneDNN; torch computes other dtypes and devices."""

    packed: PackedWeight | None = None  # set within ``packed_weights``

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


class OneDnnLora(lora.Linear):
    """peft's layer with one adapter, added in place; peft computes all other cases."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return x Wᵀ + b + scaling · x Aᵀ Bᵀ, with gradients of all but W and b."""
        base, names = self.get_base_layer(), [name for name in self.active_adapters if name in self.lora_A]
        plain = len(names) == 1 and not (args or kwargs or self.disable_adapters or self.merged)
        frozen = not any(part.requires_grad for part in base.parameters())
        if (
            not plain
            or not frozen
            or not isinstance(base, OneDnnLinear)
            or not onednn_computes(x, base.weight)
        ):
            return super().forward(x, *args, **kwargs)
        a, b, dropout = (parts[names[0]] for parts in (self.lora_A, self.lora_B, self.lora_dropout))
        drops = dropout.training and not isinstance(dropout, nn.Identity)
        if drops or names[0] in self.lora_variant or b.bias is not None:
            return super().forward(x)
        return _Adapted.apply(x, base.weight, base.bias, a.weight, b.weight, self.scaling[names[0]])


def use_onednn(model: nn.Module) -> None:
    """Let oneDNN compute the linear layers of a model, if torch has it."""
    if not torch.backends.mkldnn.is_available():
        return
    for variable in CACHES:  # read at the first product
        os.environ.setdefault(variable, str(PREPARED))
    replacements = {nn.Linear: OneDnnLinear, lora.Linear: OneDnnLora}
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


class _Adapted(torch.autograd.Function):
    """y = x Wᵀ + b + s · x Aᵀ Bᵀ for A [rank, in], B [out, rank], and frozen W and b."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scaling: float
    ) -> Tensor:
        x = x.contiguous()
        x_NI = x.view(-1, x.shape[-1])
        down_NR = linear_product(x_NI, a)
        ctx.save_for_backward(x_NI, weight, a, b, down_NR)
        ctx.scaling = scaling
        out_NO = linear_product(x_NI, weight, bias).addmm_(down_NR, b.t(), alpha=scaling)
        return no_view(out_NO.view(*x.shape[:-1], -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """With g = s · ∂y B: ∂x = ∂y W + g A, ∂A = gᵀ x, ∂B = s · ∂yᵀ (x Aᵀ)."""
        x_NI, weight, a, b, down_NR = ctx.saved_tensors
        grad_NO = grad.contiguous().view(-1, weight.shape[0])
        up_NR = linear_product(grad_NO, b.t()).mul_(ctx.scaling)
        wants_x, _, _, wants_a, wants_b, _ = ctx.needs_input_grad
        return (
            linear_product(grad_NO, weight.t()).addmm_(up_NR, a).view(*grad.shape[:-1], -1)
            if wants_x
            else None,
            None,
            None,
            linear_product(up_NR.t(), x_NI.t()) if wants_a else None,
            linear_product(grad_NO.t(), down_NR.t()).mul_(ctx.scaling) if wants_b else None,
            None,
        )


def no_view(out: Tensor) -> Tensor:
    """Return the same tensor, no longer a view of a function's output: some architectures write into it."""
    return torch.ops.aten._unsafe_view(out, out.shape)


def onednn_computes(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN computes this product."""
    fp32 = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    return fp32 and x.numel() > 0 and weight.is_contiguous()


def linear_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the product of x [..., in] and a weight [out, in]: [..., out].

    Each is contiguous or a transposed contiguous matrix: other strides take oneDNN a thousand times longer.
    """
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
