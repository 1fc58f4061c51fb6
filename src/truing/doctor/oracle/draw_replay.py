"""A replay of draws: the token that a random number selects, and its distance from the sampled one.

A draw inverts a cumulative distribution at a uniform number. With known numbers the draw is deterministic:
under another distribution the same number selects another token, sooner or later, and the distance measures
the difference (https://en.wikipedia.org/wiki/Inverse_transform_sampling).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def intervals(logprob_KV: Tensor, token_K: Tensor) -> Tensor:
    """Return the ends of the sampled tokens' probability intervals: [2, K] float64, low and high.

    Args:
        logprob_KV: the declared distributions of the K tokens, nats.
        token_K: the sampled ids.
    """
    mass_KV = logprob_KV.double().exp()
    edge_KV = mass_KV.cumsum(1)
    edge_KV = edge_KV / edge_KV[:, -1:]
    high_K = edge_KV.gather(1, token_K[:, None])[:, 0]
    return torch.stack([high_K - mass_KV.gather(1, token_K[:, None])[:, 0], high_K])


def interval_distance(logprob_KV: Tensor, token_K: Tensor, uniform_K: Tensor) -> Tensor:
    """Return the distance of numbers in [0, 1) from the sampled tokens' intervals: [K] float64, 0 inside."""
    low_K, high_K = intervals(logprob_KV, token_K)
    return torch.stack([low_K - uniform_K, uniform_K - high_K]).amax(0).clamp(min=0.0)


def other_distributions(logprob_KV: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield alternative distributions, each with its name."""
    for temperature in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.5, 2.0):
        yield f"a temperature {temperature} times as high", _log_softmax(logprob_KV / temperature)
    order_KV = logprob_KV.argsort(1, descending=True)
    rank_KV = torch.empty_like(order_KV).scatter_(
        1, order_KV, torch.arange(order_KV.shape[1]).expand_as(order_KV)
    )
    for k in (1, 3, 5, 10, 20, 40, 50, 100):
        name = "greedy choice" if k == 1 else f"top-k {k}"
        yield name, _log_softmax(logprob_KV.masked_fill(rank_KV >= k, -torch.inf))
    before_KV = logprob_KV.exp().gather(1, order_KV).cumsum(1) - logprob_KV.exp().gather(1, order_KV)
    for p in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98):
        nucleus_KV = (before_KV < p).gather(1, rank_KV)
        yield f"top-p {p}", _log_softmax(logprob_KV.masked_fill(~nucleus_KV, -torch.inf))


def replay_facts(
    logprob_KV: Tensor, token_K: Tensor, uniform_K: Tensor, seen_KV: Tensor, tolerance: float | None = None
) -> dict[str, Any]:
    """Return the largest miss, its token, the number of misses, and the settings that explain them.

    Args:
        logprob_KV: the declared distributions, nats.
        token_K: the sampled ids.
        uniform_K: the random numbers.
        seen_KV: earlier ids of the same turn, bool.
        tolerance: largest miss by rounding; None: of float32.
    """
    tolerance = TOLERANCE if tolerance is None else tolerance
    miss_K = interval_distance(logprob_KV, token_K, uniform_K)
    facts: dict[str, Any] = {"largest": float(miss_K.max()), "worst": int(miss_K.argmax()), "instead": ""}
    if facts["largest"] > tolerance:
        tried = {
            name: int((interval_distance(x, token_K, uniform_K) > tolerance).sum())
            for name, x in other_distributions(logprob_KV)
        }
        for strength in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0):
            less_KV = _log_softmax(logprob_KV - strength * seen_KV)
            tried[f"a penalty of {strength}"] = int(
                (interval_distance(less_KV, token_K, uniform_K) > tolerance).sum()
            )
        facts["instead"] = " or ".join([name for name, missed in tried.items() if missed == 0][:3])
    return facts | {"tokens": len(token_K), "missed": int((miss_K > tolerance).sum())}


TOLERANCE = 1e-3
"""Of the whole distribution: rounding moves the edges of intervals by a hundredth of it."""


def _log_softmax(scores_KV: Tensor) -> Tensor:
    return torch.log_softmax(scores_KV, 1)
