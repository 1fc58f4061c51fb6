"""Gradients as vectors: their length, and how far two are apart."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from truing.distributed.sharded_tensors import whole
from truing.measurements.weight_digests import rotating_slice
from truing.types.weight_facts import GradientDifference, GradientMass

MIN_GRADIENT_MASS = 1e-3
"""Least Σ |gradient| (1 − p) over tokens for which missing gradients are tested."""


def is_missing(gradient: Tensor | None) -> bool:
    """Return whether a gradient is None or all 0."""
    return gradient is None or not bool(whole(gradient).any())


def gradient_mass(token_gradient_N: Tensor, logprob_N: Tensor) -> GradientMass:
    """Return Σ |gradient| over tokens, and Σ |gradient| (1 − p): certain tokens move no weight."""
    size_N = token_gradient_N.nan_to_num().abs()
    free_N = -torch.expm1(logprob_N.nan_to_num().clamp(max=0.0))
    return {"pulled": float(size_N.sum()), "free": float((size_N * free_N).sum())}


def flat_gradient(parameters: Mapping[str, Tensor], step_index: int) -> Tensor:
    """Return the gradient of this step's slice of weights: [P] float64 on the CPU; 0 without a gradient."""
    gradients = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in parameters.items()
    }
    return torch.cat(
        [part.reshape(-1).double().cpu() for part in rotating_slice(gradients, step_index).values()]
    )


def attention_rounding(scores: Sequence[float], gradient_P: Tensor) -> float | None:
    """Return the length by which fused attention moves a gradient in float32: the last digit of its scores.

    Its backward pass takes each share of a softmax from a score and the logarithm of the sum, which both end
    there. In runs that diverge it reaches hundredths. None without attention along a tree.
    """
    if not scores:
        return None
    return torch.finfo(torch.float32).eps * max(scores) * float(gradient_P.norm())


def compare_gradients(expected_P: Tensor, trainer_P: Tensor) -> GradientDifference:
    """Compare two gradients of the same weights: norms, norm of the difference, cosine."""
    norm, length = float(expected_P.norm()), float(trainer_P.norm())
    difference = float((trainer_P - expected_P).norm())
    compared: GradientDifference = {"norm": norm, "trainer": length, "difference": difference}
    if norm and length:
        compared["cosine"] = float(expected_P @ trainer_P) / (norm * length)
    return compared
