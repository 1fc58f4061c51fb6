"""What the experts of a mixture answer to a probe, in float64: ``worker/truing_vllm_experts.py`` sends it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.engines.vllm.proof.changed_weights import Cast
from truing.engines.vllm.worker.truing_vllm_worker import probe_vector
from truing.errors import ModelError

STEEPEST = 1.2
"""Bound of the slopes of SiLU and GELU."""


class Experts(NamedTuple):
    """The weights of one layer's experts."""

    gate: Tensor  # [E, inner, width]
    up: Tensor  # [E, inner, width]
    down: Tensor  # [E, width, inner]
    activation: Any


def expert_modules(model: PreTrainedModel) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that hold the weights of experts, by name.

    Raises:
        ModelError: A weight is neither a matrix, nor a vector, nor one of experts that can be proven.
    """
    for name, module in model.named_modules():
        wide = [each for each, weight in module.named_parameters(recurse=False) if weight.ndim > 2]
        if wide:
            _check_experts(name, module, wide)
            yield name, module


def expert_response(module: Any, cast: Cast, seed: int) -> tuple[Tensor, Tensor]:
    """Return the experts' answers to r and −r, summed, and the size of their rounding: both [E · width].

    For a vector r with a = W₁ r and b = W₃ r: W₂ (f(a) · b − f(−a) · b). Rounding of a and b is in proportion
    to Σ|W₁| and Σ|W₃|, and reaches the answer through the slopes of the product.
    """
    experts = _weights(module, cast)
    r = probe_vector(experts.gate.shape[2], seed).double()
    a, b = experts.gate @ r, experts.up @ r
    size_a, size_b = experts.gate.abs().sum(2), experts.up.abs().sum(2)
    response, size = torch.zeros_like(experts.down[:, :, 0]), torch.zeros_like(experts.down[:, :, 0])
    for sign in (1, -1):
        active = experts.activation(sign * a)
        product = active * (sign * b)
        moved = STEEPEST * b.abs() * size_a + active.abs() * size_b + 2 * product.abs()
        response += torch.einsum("ehi,ei->eh", experts.down, product)
        size += torch.einsum("ehi,ei->eh", experts.down.abs(), moved)
    return response.flatten(), size.flatten()


def _weights(module: Any, cast: Cast) -> Experts:
    joined, down = (
        cast(weight.detach().cpu()).double() for weight in (module.gate_up_proj, module.down_proj)
    )
    return Experts(*joined.chunk(2, dim=1), down, module.act_fn)


def _check_experts(name: str, module: Any, wide: list[str]) -> None:
    """Raise unless weights of more than two dimensions are gated experts as vLLM's kernels compute them."""
    layout = {"has_gate": True, "is_concatenated": True, "is_transposed": False, "has_bias": False}
    found = {key: getattr(module, key, None) for key in layout}
    if sorted(wide) != ["down_proj", "gate_up_proj"] or found != layout:
        raise ModelError(
            "weights of this model cannot be compared with those that vLLM computes with",
            got=f"{name} ({type(module).__name__}: {', '.join(wide)})",
            expected="matrices, vectors, and gated experts without biases",
            remedy='engine.kind = "local"',
        )
