"""What an engine does with the weights that it holds: which adapter its requests use, and what it computes.

Each layer may be right, and what is sampled wrong: requests that name no adapter, and what an engine computes
once at its start (positions, scales) and loses while it sleeps.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import torch
from torch import Tensor, nn

from truing.engines.served.prefix_cache import CacheEngine, prefix_cache
from truing.engines.vllm.proof.prompts import vocabulary_of

PROMPTS, LENGTH = 4, 40
"""Prompts, and tokens of each."""

LEAST = {"float32": 0.05, "bfloat16": 0.2, "float16": 0.2}
"""Nats, as a root mean square, by which an engine may differ from a plain forward in any case."""

TIMES = 8
"""Multiples of what the engine's dtype changes of a plain forward."""

BASE = [0]
"""The adapters of requests that name none, as vLLM numbers them."""

DOUBT = "the requests before this proof used no adapter: if they were rollouts, the base sampled them"


class WorkerCalls(CacheEngine, Protocol):
    """An engine whose workers can be called."""

    def call_workers(self, method: str, **arguments: object) -> list[dict[str, Any]]:
        """Call a method of each worker that reads what it holds."""
        ...


class Computed(NamedTuple):
    """How far an engine is from a plain forward of the expected weights, as root mean squares in nats."""

    difference: float  # NaN if the engine does not say
    allowed: float

    @property
    def fault(self) -> str:
        """What is wrong; "" if nothing is."""
        return (
            f"it computes otherwise with them: log-probabilities after {PROMPTS} prompts differ by"
            f" {self.difference:.2g} nats from theirs, and its precision explains {self.allowed:.2g}"
            " (positions or scales that sleep discarded, attention)"
            if self.difference > self.allowed
            else ""
        )


class Use(NamedTuple):
    """What was seen of an engine besides its layers."""

    prefix_cache: str  # "" if nothing was found
    computed: Computed | None  # None: not compared
    faults: list[str]  # what is wrong
    doubt: str  # what may be wrong


def use_of(
    engine: WorkerCalls, policy: nn.Module, hello: dict[str, Any], model: str, *, adapter: bool, right: bool
) -> Use:
    """Look at what an engine does with its weights.

    Args:
        engine: whose workers answer.
        policy: the expected weights.
        hello: what a worker said before anything was asked.
        model: the engine's name of the model.
        adapter: whether it has an adapter loaded.
        right: whether its layers are the expected ones.
    """
    cache = prefix_cache(engine, vocabulary_of(policy), hello["dtype"])
    own = engine.call_workers("truing_hello")[0]["asked"] if adapter else None
    unused = adapter and own == BASE
    found = computed(engine, policy, hello["dtype"]) if right and not unused and _are_plain(hello) else None
    doubt = DOUBT if adapter and right and hello["asked"] == BASE and not unused else ""
    if found and found.fault:  # so what the cache has may be right
        return Use("", found, [found.fault], doubt)
    faults = [cache] if "other weights" in cache else []
    faults += [f"requests for {model} use no adapter: the base answers them"] if unused else []
    return Use(cache, found, faults, doubt)


def _are_plain(hello: dict[str, Any]) -> bool:
    """Return whether the log-probabilities that an engine gives are those of its logits."""
    changed = {*hello["defaults"]} - {"max_tokens", "temperature"}
    return hello["logprobs_mode"] == "raw_logprobs" or (
        hello["logprobs_mode"] == "processed_logprobs" and not changed
    )


@torch.no_grad()
def computed(engine: CacheEngine, policy: nn.Module, dtype: str) -> Computed:
    """Compare an engine's next-token log-probabilities with those of the expected weights."""
    differences, coarse = [], []
    for number in range(PROMPTS):
        prompt = (torch.arange(LENGTH) * (2 * number + 13) + 29 * number + 3) % vocabulary_of(policy)
        answer = engine.next_logprobs(prompt.tolist(), uuid4().hex)
        if not answer:
            return Computed(math.nan, math.nan)
        ids = torch.tensor(list(answer))
        plain = _next_logprobs(policy, prompt, "float32")[ids]
        differences.append(torch.tensor(list(answer.values()), dtype=torch.float64) - plain)
        coarse.append(_next_logprobs(policy, prompt, dtype)[ids] - plain)
    rounding = _root_mean_square(coarse)
    return Computed(_root_mean_square(differences), max(LEAST[dtype], TIMES * rounding))


def _next_logprobs(policy: Any, prompt: Tensor, dtype: str) -> Tensor:
    """Return the log-probabilities after a prompt, its products in a dtype: [V] float64."""
    with torch.autocast("cpu", getattr(torch, dtype), enabled=dtype != "float32"):
        return policy(input_ids=prompt[None]).logits[0, -1].double().log_softmax(-1)


def _root_mean_square(parts: Sequence[Tensor]) -> float:
    return float(torch.cat(list(parts)).square().mean().sqrt())
