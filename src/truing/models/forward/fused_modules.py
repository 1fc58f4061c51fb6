"""Fused modules of Llama's kind: they read memory less often and save fewer tensors for the backward pass.

A gated MLP, a(x Wᵍ) · (x Wᵘ), saves three of its widest tensors instead of four and recomputes a(·).
A norm saves its input and one number per token; on CUDA one kernel computes it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm


class FusedMlp(nn.Module):
    """A gated MLP with the submodules of transformers."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module
    act_fn: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated product, projected back."""
        gate, up = self.gate_proj(x), self.up_proj(x)
        if not torch.is_grad_enabled():
            return self.down_proj(self.act_fn(gate) * up)
        return self.down_proj(_Gated.apply(gate, up, self.act_fn))


class FusedRmsNorm(nn.Module):
    """A root mean square norm with the parameters of transformers."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, x: Tensor) -> Tensor:
        """Return each token divided by its root mean square, times the weight."""
        if x.device.type == "cuda" and x.dtype == self.weight.dtype:
            return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)
        if not torch.is_grad_enabled():
            return _normed(x, self.weight, _scale(x, self.variance_epsilon))
        return _Normed.apply(x, self.weight, self.variance_epsilon)


def use_fused_modules(model: nn.Module) -> None:
    """Replace the MLPs and norms of a model whose forward is exactly Llama's.

    Others may clamp or scale, which a numerical test may miss. MLPs whose activation has parameters stay as
    they are: the parameters would get no gradient.
    """
    for module in model.modules():
        if _computes_as(LlamaMLP, module) and _has_no_parameters(module.act_fn):
            module.__class__ = FusedMlp
        elif _computes_as(LlamaRMSNorm, module):
            module.__class__ = FusedRmsNorm


def _computes_as(plain: type[nn.Module], module: nn.Module) -> bool:
    """Whether a module has the forward of ``plain``: Qwen, Mistral and others copy Llama's."""
    one, other = (getattr(kind.forward, "__code__", None) for kind in (type(module), plain))
    if one is None or other is None or one.co_freevars:  # a wrapped forward would show only its wrapper
        return False
    return (one.co_code, one.co_names, one.co_consts) == (other.co_code, other.co_names, other.co_consts)


def _has_no_parameters(activation: object) -> bool:
    """Whether an activation has no parameters."""
    return not isinstance(activation, nn.Module) or not list(activation.parameters())


def _scale(x: Tensor, eps: float) -> Tensor:
    """Return one over the root mean square: [..., 1] in float32."""
    return x.float().square().mean(-1, keepdim=True).add_(eps).rsqrt_()


def _normed(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Return the norm, in x's dtype before the weight as in transformers."""
    return weight * (x.float() * scale).to(x.dtype)


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
            activated = ctx.act(gate)
        (grad_gate,) = torch.autograd.grad(activated, gate, grad * up)
        return grad_gate, activated.detach() * grad, None


class _Normed(torch.autograd.Function):
    """w · n for n = s x, s = 1 / √(mean x² + ε), x [..., D], w [D]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # type: ignore[override]
        scale = _scale(x, eps)
        ctx.save_for_backward(x, weight, scale)
        return _normed(x, weight, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """∂x = s (w ∂ − n · mean(n · w ∂)), ∂w = Σ n ∂."""
        x, weight, scale = ctx.saved_tensors
        n = x.float() * scale
        wants_x, wants_weight, _ = ctx.needs_input_grad
        of_weight = (n * grad).sum_to_size(weight.shape).to(weight.dtype) if wants_weight else None
        if not wants_x:
            return None, of_weight, None
        of_n = grad.float() * weight
        along_n = (n * of_n).mean(-1, keepdim=True)
        return of_n.addcmul_(n, along_n, value=-1).mul_(scale).to(x.dtype), of_weight, None
