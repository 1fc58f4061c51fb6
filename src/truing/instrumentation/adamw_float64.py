"""One weight's update, computed a second time by AdamW's formula in float64."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

ENTRIES = 4096
"""Entries of the weight."""


class AdamWSettings(Protocol):
    """What an optimiser is declared to be."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float


@dataclass(frozen=True, eq=False)
class RecomputedUpdate:
    """Where a weight was, and where its update should bring it."""

    name: str
    weight: Tensor
    before: Tensor  # [n] float64
    expected: Tensor

    def fact(self) -> dict[str, Any]:
        """How far the weight is from there; asked after the update."""
        return {
            "weight": self.name,
            "largest": float((first_entries(self.weight) - self.expected).abs().max()),
            "step": float((self.expected - self.before).abs().max()),
            # what float32 rounds off a weight is no fault of the formula
            "rounding": float(torch.finfo(self.weight.dtype).eps * self.before.abs().max()),
        }


def recompute_update(
    name: str, weight: Tensor, optimizer: torch.optim.Optimizer, declared: AdamWSettings
) -> RecomputedUpdate | None:
    """θ − lr (m̂ / (√v̂ + ε) + λ θ) (https://arxiv.org/abs/1711.05101); None without a gradient.

    Args:
        name: of the weight.
        weight: as it is before the update, with the gradient that the optimiser gets.
        optimizer: whose moments and rate.
        declared: everything else.
    """
    if weight.grad is None:
        return None
    groups = optimizer.param_groups
    rate = next((g["lr"] for g in groups if any(p is weight for p in g["params"])), groups[0]["lr"])
    state = optimizer.state.get(weight, {})
    gradient, was = first_entries(weight.grad), first_entries(weight)
    zero = torch.zeros_like(was)
    first, second = (first_entries(state[key]) if key in state else zero for key in ("exp_avg", "exp_avg_sq"))
    count = (float(state["step"]) if "step" in state else 0.0) + 1
    first = declared.beta1 * first + (1 - declared.beta1) * gradient
    second = declared.beta2 * second + (1 - declared.beta2) * gradient.square()
    divisor = (second / (1 - declared.beta2**count)).sqrt() + declared.eps
    scaled = first / (1 - declared.beta1**count) / divisor
    return RecomputedUpdate(name, weight, was, was - rate * (scaled + declared.weight_decay * was))


def first_entries(weight: Tensor) -> Tensor:
    """Some of a weight's entries, float64, on the CPU."""
    return weight.detach().reshape(-1)[:ENTRIES].double().cpu().clone()
