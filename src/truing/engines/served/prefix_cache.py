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
"""Further salts where answers differ."""

Answer = Mapping[int, float]
"""Log-probabilities of the likeliest ids, nats."""


class CacheEngine(Protocol):
    """An engine that continues a prompt."""

    def next_logprobs(self, prompt: Sequence[int], salt: str) -> Answer:
        """Return the likeliest ids after a prompt, with log-probabilities in nats; {} if it does not say.

        ``salt``: what requests must share to share cached keys and values; "" is that of plain requests.
        """
        ...


def prefix_cache(engine: CacheEngine, vocabulary: int, dtype: str) -> str:
    """Return what the cache shows, in words; "" if the engine does not say.

    A prompt that is found in the cache is rounded in another way than one that is not. So where the plain
    prompt is not answered as one with a salt, others are sent, each twice, and it must be as one of these.
    """
    prompt = [(11 * i + 7) % vocabulary for i in range(CACHED_LENGTH)]
    plain, fresh = engine.next_logprobs(prompt, ""), [engine.next_logprobs(prompt, uuid4().hex)]
    allowed = TOLERANCE[dtype]
    if not plain:
        return ""
    if _nearest(plain, fresh) > allowed:
        fresh += [engine.next_logprobs(prompt, salt) for salt in 2 * [uuid4().hex for _ in range(SALTS)]]
        allowed = max(allowed, TIMES * max(_nearest(one, [other]) for one, other in combinations(fresh, 2)))
    if (difference := _nearest(plain, fresh)) > allowed:
        return (
            "its prefix cache has keys and values of other weights: log-probabilities with it differ by"
            f" {difference:.2g} nats; drop it at each weight sync (reset_prefix_cache)"
        )
    return f"prefix cache: a prompt has the same log-probabilities with it, to {difference:.1g} nats"


def _nearest(answer: Answer, others: Sequence[Answer]) -> float:
    """Return the largest difference over the ids of both to the nearest other answer; inf without ids."""
    return min(
        max((abs(answer[i] - each[i]) for i in answer.keys() & each.keys()), default=math.inf)
        for each in others
    )
