"""Expert routes of turns, from an engine's answers to a sample."""

from collections.abc import Sequence

import torch
from torch import Tensor

from truing.types.rollout import Turn
from truing.types.token import NO_ROUTE


def routes_of_turn(routes: Tensor | None, new: int) -> Tensor | None:
    """Return the routes of a turn's ``new`` ids, context and sampled, and of the id before: [1 + new, ...].

    ``routes`` are of the whole prompt and the sampled ids. The first turn has no id before: a row of −1.
    """
    if routes is None:
        return None
    none_before = torch.full_like(routes[:1], NO_ROUTE)
    return torch.cat([none_before, routes])[-(1 + new) :].clone()


def join_routes(turns: Sequence[Turn]) -> Tensor | None:
    """Return the routes of turns that extend each other: [T, layers, K]; None if no turn has any.

    The last id of an answer has no route until the next turn's prompt is computed. Other ids keep the routes
    with which they were sampled, also if an engine computed them again with the next turn.
    """
    known = next((turn.routes for turn in turns if turn.routes is not None), None)
    if known is None:
        return None
    parts: list[Tensor] = []
    for turn in turns:
        new = len(turn.context_ids) + len(turn.token_ids)
        routes = turn.routes
        if routes is None:
            routes = torch.full((1 + new, *known.shape[1:]), NO_ROUTE, dtype=known.dtype)
        if parts and len(parts[-1]) and bool((parts[-1][-1] == NO_ROUTE).all()):
            parts[-1] = torch.cat([parts[-1][:-1], routes[:1]])
        parts.append(routes[1:])
    return torch.cat(parts)
