"""Whether an engine's prefix cache has keys and values of other weights.

One prompt is always the same. A proof before has left it in the cache, and a weight sync must drop it: else
it is answered with keys and values of the weights before. A request with its own salt finds nothing there.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Protocol
from uuid import uuid4

from truing.engines.vllm.proof.prompts import CACHED_LENGTH

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.01, "float16": 0.01}
"""Nats by which answers to a prompt may differ in any case."""

TIMES = 4
"""Multiples of how far answers with salts lie apart, which other requests and the cache itself round."""

SALTS = 2
"""Salts, with each of which the prompt is sent twice."""


class CacheEngine(Protocol):
    """An engine that continues a prompt."""

    def next_logprobs(self, prompt: Sequence[int], salt: str) -> Mapping[int, float] | None:
        """Return the likeliest ids after a prompt, with log-probabilities in nats; None if it does not say.

        ``salt``: what requests must share to share cached keys and values; "" is that of plain requests.
        """
        ...


def prefix_cache(engine: CacheEngine, vocabulary: int, dtype: str) -> str:
    """Return what the cache shows, in words; "" if the engine does not say.

    A prompt that is found in the cache is rounded in another way than one that is not. So each salt is sent
    twice, and the plain prompt must be answered as one of these.
    """
    prompt = [(11 * i + 7) % vocabulary for i in range(CACHED_LENGTH)]
    salts = [uuid4().hex for _ in range(SALTS)]
    answers = [engine.next_logprobs(prompt, salt) for salt in ("", *salts, *salts)]
    plain, *fresh = [each for each in answers if each is not None] or [{}]
    if len(fresh) < 2 * SALTS:
        return ""
    difference = min(_apart(plain, each) for each in fresh)
    rounding = max(_apart(one, other) for one, other in combinations(fresh, 2))
    if difference > max(TOLERANCE[dtype], TIMES * rounding):
        return (
            "its prefix cache has keys and values of other weights: log-probabilities with it differ by"
            f" {difference:.2g} nats; drop it at each weight sync (reset_prefix_cache)"
        )
    return f"prefix cache: a prompt has the same log-probabilities with it, to {difference:.1g} nats"


def _apart(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """Return the largest difference over the ids of both, nats; infinite without any."""
    return max((abs(one[i] - other[i]) for i in one.keys() & other.keys()), default=math.inf)
