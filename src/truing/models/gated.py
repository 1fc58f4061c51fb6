"""Gated MLPs, a(x Wᵍ) · (x Wᵘ), that keep less for the backward pass: what a(·) gave is computed again.

Of the widest tensors of a layer, gate, a(gate), up and their product, three are kept instead of four.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.models.llama.modeling_llama import LlamaMLP


class LeanMlp(nn.Module):
    """A gated MLP with the parts that transformers gives it."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module
    act_fn: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """The product, projected back."""
        return self.down_proj(_Gated.apply(self.gate_proj(x), self.up_proj(x), self.act_fn))


def keep_less(model: nn.Module) -> None:
    """Let the gated MLPs of a model keep less: those whose forward is Llama's, word for word.

    Others may clamp or scale on the way, which no trial would show; and what an activation learns would get
    no gradient.
    """
    for module in model.modules():
        if _is_plain(module) and not list(module.act_fn.parameters()):
            module.__class__ = LeanMlp


def _is_plain(module: nn.Module) -> bool:
    """Whether a module computes as LlamaMLP does: Qwen, Mistral, Gemma and others have its forward, too."""
    own, plain = getattr(type(module).forward, "__code__", None), LlamaMLP.forward.__code__
    return own is not None and (own.co_code, own.co_names) == (plain.co_code, plain.co_names)


class _Gated(torch.autograd.Function):
    """a(gate) · up for gate and up [..., inner]."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, act: nn.Module) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(gate, up)
        ctx.act = act
        return act(gate) * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """∂gate = a'(gate) · up · ∂, ∂up = a(gate) · ∂."""
        gate, up = ctx.saved_tensors
        with torch.enable_grad():
            gate = gate.detach().requires_grad_()
            opened = ctx.act(gate)
        (grad_gate,) = torch.autograd.grad(opened, gate, grad * up)
        return grad_gate, opened.detach() * grad, None
