"""An output head that multiplies in bfloat16 and returns logits in float32.

A logit of 20 is rounded by up to 0.06 in bfloat16. Sampler, trainer and reference would round it by chance in
other directions, and so would their log-probabilities differ. Here only the inputs of the product are in
bfloat16, by their dtype or by autocast: it is summed, and stays, in float32.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel

from truing.models.forward.float32_product import float32_product
from truing.models.forward.onednn_linear import OneDnnLinear, no_view

CHUNK_ENTRIES = 1 << 22
"""Weights that are in float32 at a time on a CPU: 16 MB."""


class Float32Head(OneDnnLinear):
    """A linear layer; where it multiplies in bfloat16 its output is float32."""

    returns_float32 = True

    def forward(self, input: Tensor) -> Tensor:
        """Return x Wᵀ + b, with gradients."""
        if not self._multiplies_bfloat16(input.device.type):
            return super().forward(input)
        out = _Float32Product.apply(input, self.weight)
        return out if self.bias is None else out + self.bias

    def _multiplies_bfloat16(self, device: str) -> bool:
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device) is torch.bfloat16
        return self.weight.dtype is torch.bfloat16


def use_float32_head(model: PreTrainedModel) -> None:
    """Let the output head of a model return float32, if it is a plain linear layer."""
    head = model.get_output_embeddings()
    if head is not None and type(head) in (nn.Linear, OneDnnLinear):
        head.__class__ = Float32Head


class _Float32Product(torch.autograd.Function):
    """y = x Wᵀ in float32 for x [..., D] and W [V, D], some rows of W at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        with torch.autocast(x.device.type, enabled=False):
            x_ND = x.reshape(-1, x.shape[-1]).bfloat16()
            out_NV = x.new_empty(len(x_ND), len(weight), dtype=torch.float32)
            for start, rows_vD in _chunks(weight):
                out_NV[:, start : start + len(rows_vD)] = float32_product(x_ND, rows_vD.t())
        return no_view(out_NV.view(*x.shape[:-1], -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """∂x = ∂ W, ∂W = ∂ᵀ x, both summed in float32; on CUDA ∂ is in bfloat16, as autocast has it."""
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        x_ND, grad_NV = x.reshape(-1, x.shape[-1]).bfloat16(), grad.reshape(-1, grad.shape[-1])
        if grad.device.type == "cuda":
            grad_NV = grad_NV.bfloat16()
        of_x_ND = torch.zeros_like(x_ND, dtype=torch.float32)
        of_weight_VD = torch.empty_like(weight) if wants_weight else None
        for start, rows_vD in _chunks(weight):
            grad_Nv = grad_NV[:, start : start + len(rows_vD)]
            if wants_x:
                of_x_ND += float32_product(grad_Nv, rows_vD)
            if of_weight_VD is not None:
                of_weight_VD[start : start + len(rows_vD)] = float32_product(grad_Nv.t(), x_ND)
        return of_x_ND.view(x.shape).to(x.dtype) if wants_x else None, of_weight_VD


def _chunks(weight_VD: Tensor) -> list[tuple[int, Tensor]]:
    """Return rows of a weight in bfloat16 at a time, with the index of their first: on CUDA all."""
    rows = max(1, CHUNK_ENTRIES // weight_VD.shape[1])
    if weight_VD.device.type == "cuda":
        rows = len(weight_VD)
    return [(start, weight_VD[start : start + rows].bfloat16()) for start in range(0, len(weight_VD), rows)]
