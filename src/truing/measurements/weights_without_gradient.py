"""Detection of missing gradients: weights that log-probabilities depend on, but that get no gradient."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from truing.distributed.sharded_tensors import copy_whole, whole
from truing.types.weight_facts import MissingGradient

PERTURBATION = 1e-2
"""Size of a perturbation relative to the weight's root mean square; to 1 if the weight is all 0."""

COARSE_PERTURBATION = 0.16
"""The same where rounding hides an effect as small as that of a hundredth."""

MAX_WEIGHTS, DIRECTIONS = 16, 4
"""Weights tested one by one; and perturbations of each, as the effect of one may cancel over tokens."""

LogprobFn = Callable[[], Tensor]
"""Returns the log-probabilities [K] of the tokens with a gradient, by the current weights, nats."""


@torch.no_grad()
def missing_gradient(
    weights: Mapping[str, Tensor],
    without_gradient: Sequence[str],
    logprobs: LogprobFn,
    token_gradient_K: Tensor,
    rounded: LogprobFn | None = None,
    *,
    coarse: bool = False,
) -> MissingGradient | None:
    """Return the weight without a gradient that the loss depends on most, if there is one.

    A weight without influence is healthy, as A of an adapter whose B is 0. Half the perturbation must have
    half the effect: a jump, as in the choice of experts, has no slope. Effects must not cancel over tokens:
    then a gradient of 0 is right.

    Args:
        weights: by name.
        without_gradient: names of those without a gradient.
        logprobs: computes the log-probabilities.
        token_gradient_K: of the same tokens.
        rounded: computes them under random rounding. The fact ``rounding`` is the largest effect of
            ``DIRECTIONS`` such forwards.
        coarse: whether they are computed in another precision than float32.
    """
    size = COARSE_PERTURBATION if coarse else PERTURBATION
    if (
        not without_gradient
        or not len(token_gradient_K)
        or not _sensitivity(weights, without_gradient, logprobs, token_gradient_K, size)[0]
    ):
        return None
    largest: MissingGradient | None = None
    for name in without_gradient[:MAX_WEIGHTS]:
        for direction in range(DIRECTIONS):
            change, linear = _sensitivity(weights, [name], logprobs, token_gradient_K, size, direction)
            if linear and change > (largest["moved"] if largest else 0.0):
                largest = {"weight": name, "moved": change, "silent": len(without_gradient)}
    if largest and rounded is not None:
        before_K, mass = logprobs(), float(token_gradient_K.abs().sum())
        effects = [float((token_gradient_K * (rounded() - before_K)).sum()) for _ in range(DIRECTIONS)]
        largest["rounding"] = max(map(abs, effects)) / mass
    return largest


def _sensitivity(
    weights: Mapping[str, Tensor],
    names: Sequence[str],
    logprobs: LogprobFn,
    token_gradient_K: Tensor,
    largest: float,
    direction: int = 0,
) -> tuple[float, bool]:
    """Return the change of Σ gradient · log-probability per gradient, nats; and whether it is linear."""
    before_K, size_K = logprobs(), token_gradient_K.abs()
    changes: list[Tensor] = []
    for size in (largest, largest / 2):
        with _perturbed([weights[name] for name in names], size, direction):
            changes.append(token_gradient_K * (logprobs() - before_K))
    full, half = (float(change_K.sum()) for change_K in changes)
    linear = abs(full - 2 * half) < 0.2 * abs(full)
    same_sign = abs(full) > 0.1 * float(changes[0].abs().sum())
    return abs(full) / float(size_K.sum()), linear and same_sign


@contextmanager
def _perturbed(weights: Sequence[Tensor], size: float, direction: int) -> Iterator[None]:
    """Perturb weights within the block; restore them bit for bit after it."""
    originals = [whole(weight.detach()).clone() for weight in weights]
    generator = torch.Generator().manual_seed(direction)  # leaves the trainer's RNG state alone
    try:
        for weight, original in zip(weights, originals, strict=True):
            noise = torch.randn(weight.shape, generator=generator).to(original)
            scale = size * (original.float().square().mean().sqrt().item() or 1.0)
            copy_whole(weight, original + scale * noise)
        torch.clear_autocast_cache()  # it holds copies of the original weights
        yield
    finally:
        for weight, original in zip(weights, originals, strict=True):
            copy_whole(weight, original)
        torch.clear_autocast_cache()
