"""Weights that log-probabilities depend on, and to which no gradient comes: a path that was cut."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

PERTURBATION = 1e-2
"""Of a weight's own size; of 1 where it is 0 throughout."""

MAX_WEIGHTS, DIRECTIONS = 16, 4
"""Weights that are asked one by one, where some of them are at fault; and nudges of each: what tokens lose by
one of them may be what others gain."""

LogprobFn = Callable[[], Tensor]
"""Log-probabilities [K] of the tokens that are pulled, as the weights are now, nats."""


@torch.no_grad()
def missing_gradient(
    weights: Mapping[str, Tensor],
    without_gradient: Sequence[str],
    logprobs: LogprobFn,
    token_gradient_K: Tensor,
) -> dict[str, Any]:
    """The silent weight that the loss depends on most, and how much; empty where there is none.

    Silent ones that matter to nothing, as A of an adapter whose B is still 0, are as they should be. Half a
    change must show half as much: what jumps, like a choice of experts, has no slope to miss. And what tokens
    lose by it must not be what others gain: then a gradient of 0 is right.

    Args:
        weights: by name.
        silent: names of those without a gradient.
        said: asks the model.
        pull_K: how hard each token is pulled.
    """
    if (
        not without_gradient
        or not len(token_gradient_K)
        or not _sensitivity(weights, without_gradient, logprobs, token_gradient_K)[0]
    ):
        return {}
    found: dict[str, Any] = {}
    for name in without_gradient[:MAX_WEIGHTS]:
        for direction in range(DIRECTIONS):
            moved, straight = _sensitivity(weights, [name], logprobs, token_gradient_K, direction)
            if straight and moved > found.get("moved", 0.0):
                found = {"weight": name, "moved": moved, "silent": len(without_gradient)}
    return found


def _sensitivity(
    weights: Mapping[str, Tensor], names: Sequence[str], said: LogprobFn, pull_K: Tensor, direction: int = 0
) -> tuple[float, bool]:
    """What a nudge changes of Σ pull · log-probability, nats per pull; whether half does half of that."""
    before_K, size_K = said(), pull_K.abs()
    changes: list[Tensor] = []
    for size in (PERTURBATION, PERTURBATION / 2):
        with _perturbed([weights[name] for name in names], size, direction):
            changes.append(pull_K * (said() - before_K))
    whole, half = (float(change_K.sum()) for change_K in changes)
    straight = abs(whole - 2 * half) < 0.2 * abs(whole)
    alike = abs(whole) > 0.1 * float(changes[0].abs().sum())
    return abs(whole) / float(size_K.sum()), straight and alike


@contextmanager
def _perturbed(weights: Sequence[Tensor], size: float, direction: int) -> Iterator[None]:
    """Weights a little off within the block, and bit for bit the same behind it."""
    kept = [weight.detach().clone() for weight in weights]
    chance = torch.Generator().manual_seed(direction)  # the trainer's own chance is left alone
    try:
        for weight, was in zip(weights, kept, strict=True):
            noise = torch.randn(weight.shape, generator=chance).to(weight)
            weight.add_(size * (was.float().square().mean().sqrt().item() or 1.0) * noise)
        torch.clear_autocast_cache()  # of copies of weights as they were
        yield
    finally:
        for weight, was in zip(weights, kept, strict=True):
            weight.copy_(was)
        torch.clear_autocast_cache()
