"""Expert routes of turns become those of a sample: each id keeps the routes it was sampled with."""

from dataclasses import replace

import torch

from truing.types.rollout import Turn
from truing.types.status import FinishReason
from truing.types.token import Origin
from truing.types.turn_routes import join_routes, routes_of_turn


def routes(*experts):
    """One layer, one expert per token."""
    return torch.tensor(experts, dtype=torch.int16).view(-1, 1, 1)


def turn(context, answer, found):
    return Turn(
        context_ids=torch.arange(context),
        context_origin=torch.full((context,), Origin.PROMPT, dtype=torch.uint8),
        token_ids=torch.arange(answer),
        origin=torch.full((answer,), Origin.SAMPLED, dtype=torch.uint8),
        structure=torch.zeros(answer, dtype=torch.bool),
        sampler_logprob=torch.zeros(answer),
        finish_reason=FinishReason.STOP,
        sampler_version=0,
        weight_digest="",
        routes=None if found is None else routes_of_turn(found, context + answer),
    )


def test_a_turn_keeps_what_is_new_and_the_id_before():
    assert routes_of_turn(routes(0, 1, 2, -1), 4).flatten().tolist() == [-1, 0, 1, 2, -1]
    assert routes_of_turn(routes(0, 1, 2, 7, 4, 5, -1), 3).flatten().tolist() == [7, 4, 5, -1]
    assert routes_of_turn(None, 3) is None


def test_the_last_id_of_a_turn_gets_its_routes_from_the_next_prompt():
    first = turn(2, 2, routes(0, 1, 2, -1))
    second = turn(1, 2, routes(9, 9, 9, 3, 4, 5, -1))  # vLLM computed the prompt again, and rounded otherwise
    assert join_routes([first, second]).flatten().tolist() == [0, 1, 2, 3, 4, 5, -1]


def test_a_turn_without_routes_stands_between_others():
    turns = [turn(2, 1, routes(0, 1, -1)), turn(1, 1, None), turn(1, 1, routes(9, 9, 9, 9, 4, 5, -1))]
    assert join_routes(turns).flatten().tolist() == [0, 1, -1, -1, 4, 5, -1]
    assert join_routes([replace(turns[0], routes=None)]) is None
