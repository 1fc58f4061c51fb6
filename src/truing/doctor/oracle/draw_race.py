"""A replay of races: vLLM samples the id whose log-probability plus Gumbel noise is the largest.

The noise follows from the request's seed and the token's place in the turn, so the race can be run again: the
sampled id must come first. Under another distribution another id comes first, sooner or later, and the nats
by which the sampled one is behind measure the difference (https://arxiv.org/abs/1611.01144, section 2).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from truing.doctor.oracle.draw_replay import TOLERANCE, other_distributions

GAMMA, MIX = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Constants of SplitMix64 (Steele, Lea and Flood, 2014)."""

KINDS = ("hashed", "exponential")
"""How vLLM makes its noise: on a CPU it hashes a number per token, elsewhere torch's generator draws it."""

IMPOSSIBLE = 1e3
"""Nats of an id that the declared distribution excludes."""

CHOSEN = 4.0
"""Nats that the choice among some forty other settings costs."""

EXPLAINED = math.log(1e9)
"""Nats by which it must be unlikely that other noise agrees with all draws under some setting."""

CERTAIN = 4.0
"""Standard deviations above chance from which agreeing draws show that the noise is the engine's."""


def race_noise(kind: str, seed: int, vocabulary: int) -> Iterator[Tensor]:
    """Yield the noise of each token of a turn: [V] float64, standard Gumbel."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        if kind == "hashed":
            drawn = int(torch.randint(0, 2**31, (1,), generator=generator))
            yield hashed_noise(drawn, vocabulary)
        else:
            yield -torch.empty(vocabulary).exponential_(generator=generator).double().log()


def hashed_noise(number: int, vocabulary: int) -> Tensor:
    """Return Gumbel noise from 53 bits of SplitMix64 of a number and each id: [V] float64."""
    index_V = torch.arange(1, vocabulary + 1, dtype=torch.int64)
    bits_V = _logical_shift(_mixed(_mixed(torch.tensor(number)) + index_V * _signed(GAMMA)), 11)
    return -(-((bits_V.double() + 0.5) * 2.0**-53).log()).log()


def race_facts(
    logprob_KV: Tensor, token_K: Tensor, noise_KV: Tensor, tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """Return by how much sampled ids are behind, how many are, and the settings that explain all of them.

    ``explained`` is how unlikely it is, in nats, that other noise agrees with all ids under one of these.

    Args:
        logprob_KV: the declared distributions, nats.
        token_K: the sampled ids.
        noise_KV: Gumbel noise.
        tolerance: nats that rounding explains.
    """
    behind_K = behind(logprob_KV, token_K, noise_KV)
    missed = int((behind_K > tolerance).sum())
    instead = {
        name: -float(chances(other_KV, token_K, tolerance).log().sum())
        for name, other_KV in other_distributions(logprob_KV)
        if missed and bool((behind(other_KV, token_K, noise_KV) <= tolerance).all())
    }
    return {
        "tokens": len(token_K),
        "missed": missed,
        "largest": float(behind_K.max()),
        "worst": int(behind_K.argmax()),
        "instead": " or ".join([*instead][:3]),
        "explained": max(0.0, max(instead.values(), default=0.0) - CHOSEN),
        "chance": float(chances(logprob_KV, token_K, tolerance).sum()),
    }


def chances(logprob_KV: Tensor, token_K: Tensor, tolerance: float) -> Tensor:
    """Return the probability that each id is within the tolerance of the first with other noise: [K]."""
    own_K = logprob_KV.gather(1, token_K[:, None])[:, 0].double().exp()
    ahead_K = own_K * math.exp(min(tolerance, IMPOSSIBLE / 2))
    return ahead_K / (ahead_K + 1 - own_K)


def behind(logprob_KV: Tensor, token_K: Tensor, noise_KV: Tensor) -> Tensor:
    """Return by how many nats each sampled id is behind the first: [K], 0 for the first itself."""
    score_KV = logprob_KV.double() + noise_KV
    behind_K = score_KV.amax(1) - score_KV.gather(1, token_K[:, None])[:, 0]
    return behind_K.clamp(max=IMPOSSIBLE)


def is_their_noise(parts: Sequence[dict[str, Any]]) -> bool:
    """Return whether draws agree more often than with noise that the engine did not use.

    Under a distribution far from the declared one few of them do. Then all agree under another one.
    """
    if sum(part["explained"] for part in parts) > EXPLAINED:
        return True
    tokens, missed, chance = (sum(part[name] for part in parts) for name in ("tokens", "missed", "chance"))
    deviation = math.sqrt(chance * max(0.0, 1 - chance / tokens))
    return tokens - missed > chance + CERTAIN * deviation + 1


def _mixed(z: Tensor) -> Tensor:
    """Return the output function of SplitMix64, on 64 bits held as signed numbers."""
    for shift, factor in MIX:
        z = (z ^ _logical_shift(z, shift)) * _signed(factor)
    return z ^ _logical_shift(z, 31)


def _logical_shift(z: Tensor, by: int) -> Tensor:
    """Return z shifted to the right, filled with zeros."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _signed(number: int) -> int:
    """Return 64 bits as a signed number."""
    return number - (1 << 64) if number >> 63 else number
