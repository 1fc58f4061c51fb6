"""A fake server that rounds otherwise: in a mixture it selects other experts for some of the tokens."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from dev.faults.fake_vllm.weights import HeldModel, RoutedCache
from dev.faults.fault import patched
from truing.models.forward.expert_routes import routers_of, use_routes
from truing.types.token import NO_ROUTE

SHARE = 0.2
"""Share of the sampled tokens that take other experts."""

LATER = 20
"""Tokens before the first of them: the rows that prove a publication are shorter, and agree."""


@contextmanager
def rounds_otherwise(*further: Callable[[], Any]) -> Iterator[None]:
    """Let the fake server select other experts; ``further`` are the plants of a fault."""
    with ExitStack() as stack:
        stack.enter_context(patched("dev.faults.fake_vllm.weights:HeldModel.routing", _make))
        for plant in further:
            stack.enter_context(plant())
        yield


def _make(real: Any) -> Any:
    @contextmanager
    def routing(held: HeldModel, tokens: int, cache: RoutedCache) -> Iterator[None]:
        length = int(cache.get_seq_length())
        drawn = torch.rand(2, generator=torch.Generator().manual_seed(length))
        if tokens > 1 or length < LATER or float(drawn[0]) > SHARE:
            yield
            return
        routers: dict[int, Any] = routers_of(held.base)
        router = next(iter(routers.values()))
        layers = held.base.config.num_hidden_layers
        routes = torch.full((1, layers, router.top_k), NO_ROUTE, dtype=torch.int16)
        first = int(drawn[1] * len(router.weight))
        routes[0, :] = (first + torch.arange(router.top_k)) % len(router.weight)
        with use_routes(held.base, routes):
            yield

    return routing
