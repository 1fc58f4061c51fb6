"""Turns that the engine samples, scored by the trainer under the declared sampling parameters.

Raw log-probabilities, a temperature or a penalty of the server's own, shifted ids and exchanged answers show.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from truing.engines.base import Completion, Request
from truing.engines.vllm.canary import MIXTURE_SHARE, REMEDY, canary_sample, largest, sample_scores
from truing.errors import PublicationError
from truing.models.forward.route_support import is_mixture
from truing.models.forward.score import causal_model
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.token import NO_ROUTE

TEMPERATURES = tuple(round(0.05 * i, 2) for i in range(2, 41))
REPETITION_PENALTIES = tuple(round(1 + 0.05 * i, 2) for i in range(1, 11))
"""Values that a server may have of its own, in a generation_config.json for example."""

Turn = tuple[Request, Completion]


def compare_turns(
    policy: nn.Module,
    turns: Sequence[Turn],
    params: SamplingParams,
    tolerance: float,
    uncached: Callable[[], Sequence[Turn]],
) -> dict[str, Any]:
    """Compare the log-probabilities of sampled turns with the trainer's under the declared parameters.

    Args:
        policy: with the published weights.
        turns: what the engine sampled.
        params: the declared parameters.
        tolerance: nats that rounding explains.
        uncached: samples them again without what the engine has cached, to find the cause.
    """
    distance = _distance(policy, turns, params)
    if distance <= tolerance:
        return {"largest": distance, "tokens": sum(len(turn.token_ids) for _, turn in turns)}
    routed = any(turn.routes is not None for _, turn in turns)
    without_routes = [(request, replace(turn, routes=None)) for request, turn in turns]
    fitting = [(each, name) for each, name in _alternatives(policy, turns, params) if each <= tolerance]
    if fitting:
        cause = min(fitting, key=itemgetter(0))[1]
    elif routed and _distance(policy, without_routes, params) <= tolerance:
        cause = "its expert routes are not those with which it computed"
    elif _distance(policy, uncached(), params) <= tolerance:
        cause = "its prefix cache answers with keys and values of other weights"
    else:
        cause = "no known setting gives them"
    raise PublicationError(
        f"the engine's log-probabilities are not those of the declared sampling parameters: {cause}",
        got=f"a difference of up to {distance:.3g} nats",
        expected=f"at most {tolerance:g} nats under {params}",
        remedy=REMEDY,
    )


def _alternatives(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams
) -> Iterator[tuple[float, str]]:
    """Yield how far the turns are from what an engine may do wrong, nats, and a sentence about it."""
    for name, other in _other_params(params).items():
        yield _distance(policy, turns, other), f"they are those {name}"
    for penalty in REPETITION_PENALTIES:
        other = replace(params, repetition_penalty=penalty)
        name = f"they are those of repetition penalty {penalty}, which counts the prompt"
        yield _distance(policy, turns, other, penalize_prompt=True), name
    for shift in (1, -1):
        moved = [(request, replace(turn, token_ids=turn.token_ids - shift)) for request, turn in turns]
        yield _distance(policy, moved, params), f"its ids are off by {shift:+d}"
    yield from _other_routes(policy, turns, params)
    for order in permutations(range(len(turns))):
        if list(order) != sorted(order):
            moved = [(turns[i][0], replace(turns[j][1], routes=None)) for i, j in enumerate(order)]
            yield _distance(policy, moved, params), "answers of two requests are exchanged"


def _other_routes(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams
) -> Iterator[tuple[float, str]]:
    """Yield the same for what an engine may do wrong with the expert routes that it returns."""
    routed = [(request, turn, turn.routes) for request, turn in turns if turn.routes is not None]
    if len(routed) < len(turns):
        return
    for shift in (1, -1):
        moved = [(r, replace(turn, routes=_placed(routes.roll(-shift, 0)))) for r, turn, routes in routed]
        name = "before" if shift > 0 else "after"
        yield _distance(policy, moved, params), f"its expert routes are those of the token {name}"


def _placed(routes: Tensor) -> Tensor:
    """Return shifted routes; what was shifted around, and the last token, have none."""
    return torch.cat([routes[:-1], torch.full_like(routes[:1], NO_ROUTE)])


def _other_params(params: SamplingParams) -> dict[str, SamplingParams]:
    """Return other sampling parameters that an engine may compute with, by their name in a sentence."""
    neutral = replace(RAW, max_new_tokens=params.max_new_tokens, stop_ids=params.stop_ids)
    others = {"without any parameter (raw log-probabilities)": neutral}
    others |= {
        f"without sampling.{name}": replace(params, **{name: getattr(RAW, name)})
        for name in ("temperature", "presence_penalty", "frequency_penalty", "min_new_tokens")
    }
    others |= {f"of temperature {value}": replace(params, temperature=value) for value in TEMPERATURES}
    return {name: other for name, other in others.items() if other != params}


def _distance(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, *, penalize_prompt: bool = False
) -> float:
    """Return how far the turns' log-probabilities are from the trainer's, nats; impossible ids: ∞."""
    vocabulary = causal_model(policy).config.get_text_config().vocab_size
    if any(bool(((turn.token_ids < 0) | (turn.token_ids >= vocabulary)).any()) for _, turn in turns):
        return float("inf")
    samples = [
        canary_sample(
            str(i),
            request.prompt_ids,
            turn.token_ids,
            params,
            turn.support if params.truncates_support else None,
            routes=turn.routes,
            penalize_prompt=penalize_prompt,
        )
        for i, (request, turn) in enumerate(turns)
    ]
    scored = sample_scores(policy, samples)
    # near a tie a mixture without routes on record may take other experts, and then scores a token otherwise
    apart = is_mixture(causal_model(policy)) and any(turn.routes is None for _, turn in turns)
    differences = [mine - turn.logprob for mine, (_, turn) in zip(scored, turns, strict=True)]
    return largest(torch.cat(differences), MIXTURE_SHARE if apart else 1.0)
