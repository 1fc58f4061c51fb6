"""A linear layer with one adapter, computed in place of peft's forward.

peft casts the input to the adapter's float32 and back, and adds the adapter's output in a table of its own.
Here two products write into one table, in the dtype of the base.
"""

from typing import Any

import torch
from peft.tuners import lora
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from truing.models.forward.float32_product import float32_product
from truing.models.forward.onednn_product import linear_product, no_view, onednn_computes


class FusedLora(lora.Linear):
    """peft's layer with one adapter, added in place; peft computes all other cases."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return x Wᵀ + b + scaling · x Aᵀ Bᵀ, with gradients of all but W and b."""
        base, names = self.get_base_layer(), [name for name in self.active_adapters if name in self.lora_A]
        plain = len(names) == 1 and not (args or kwargs or self.disable_adapters or self.merged)
        if not plain or not isinstance(base, nn.Linear) or not _computes(x, base):
            return super().forward(x, *args, **kwargs)
        a, b, dropout = (parts[names[0]] for parts in (self.lora_A, self.lora_B, self.lora_dropout))
        drops = dropout.training and not isinstance(dropout, nn.Identity)
        hooked = any(part._forward_hooks or part._forward_pre_hooks for part in (base, a, b))
        if drops or hooked or names[0] in self.lora_variant or b.bias is not None:
            return super().forward(x)
        return _Adapted.apply(x, base.weight, base.bias, a.weight, b.weight, self.scaling[names[0]])


def _computes(x: Tensor, base: nn.Linear) -> bool:
    """Whether the products are those of oneDNN, or of bfloat16 on CUDA, with a frozen base."""
    if any(part.requires_grad for part in base.parameters()):
        return False
    if x.device.type == "cuda":
        rounds = not getattr(base, "returns_float32", False)
        return rounds and x.dtype == base.weight.dtype == torch.bfloat16 and x.numel() > 0
    return onednn_computes(x, base.weight)


class _Adapted(torch.autograd.Function):
    """y = x Wᵀ + b + s · x Aᵀ Bᵀ for A [rank, in], B [out, rank], and frozen W and b."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scaling: float
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x_NI = x.contiguous().view(-1, x.shape[-1])
            a_RI, b_OR = a.to(x.dtype), b.to(x.dtype)
            down_NR = _product(x_NI, a_RI)
            out_NO = _product(x_NI, weight, bias).addmm_(down_NR, b_OR.t(), alpha=scaling)
        ctx.save_for_backward(x_NI, weight, a_RI, b_OR, down_NR)
        ctx.scaling, ctx.dtype = scaling, a.dtype
        return no_view(out_NO.view(*x.shape[:-1], -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """With g = s · ∂y B: ∂x = ∂y W + g A, ∂A = gᵀ x, ∂B = s · ∂yᵀ (x Aᵀ)."""
        x_NI, weight, a_RI, b_OR, down_NR = ctx.saved_tensors
        grad_NO = grad.contiguous().view(-1, weight.shape[0])
        up_NR = _product(grad_NO, b_OR.t()).mul_(ctx.scaling)
        wants_x, _, _, wants_a, wants_b, _ = ctx.needs_input_grad
        return (
            _product(grad_NO, weight.t()).addmm_(up_NR, a_RI).view(*grad.shape[:-1], -1) if wants_x else None,
            None,
            None,
            _summed(up_NR.t(), x_NI).to(ctx.dtype) if wants_a else None,
            _summed(grad_NO.t(), down_NR).mul_(ctx.scaling).to(ctx.dtype) if wants_b else None,
            None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the product of x [N, in] and a weight [out, in]: [N, out], in their dtype."""
    if onednn_computes(x, x):
        return linear_product(x, weight, bias)
    return nn.functional.linear(x, weight, bias)


def _summed(one_KN: Tensor, other_NM: Tensor) -> Tensor:
    """Return the product [K, M], a sum over rows, in float32."""
    if onednn_computes(one_KN, one_KN.t()):
        return linear_product(one_KN, other_NM.t())
    return float32_product(one_KN, other_NM)
