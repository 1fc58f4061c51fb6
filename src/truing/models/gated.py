"""Gated MLPs, a(x Wᵍ) · (x Wᵘ), that keep less for the backward pass: what a(·) gave is computed again.

Of the widest tensors of a layer, gate, a(gate), up and their product, three are kept instead of four.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

PARTS = {"gate_proj", "up_proj", "down_proj", "act_fn"}
"""What transformers calls the parts of a gated MLP, in Llama, Qwen, Mistral, Gemma and others."""


class Lean:
    """Mixed into an MLP's own class, in front of it."""

    def forward(self: Any, x: Tensor) -> Tensor:
        """As the MLP's own."""
        return self.down_proj(_Gated.apply(self.gate_proj(x), self.up_proj(x), self.act_fn))


def keep_less(model: nn.Module) -> None:
    """Let the gated MLPs of a model keep less; one that computes anything else is left as it is."""
    for module in model.modules():
        if {name for name, _ in module.named_children()} == PARTS and _is_plain(module):
            module.__class__ = type(f"Lean{type(module).__name__}", (Lean, type(module)), {})


@torch.no_grad()
def _is_plain(mlp: Any) -> bool:
    """Whether an MLP computes what its parts say, by what it makes of one input."""
    weight = mlp.gate_proj.weight
    x = torch.linspace(-1, 1, weight.shape[1], dtype=weight.dtype, device=weight.device)[None]
    return torch.equal(mlp(x), mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x)))


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
