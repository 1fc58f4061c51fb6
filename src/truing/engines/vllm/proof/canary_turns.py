"""Turns that the engine samples, scored by the trainer under the declared sampling parameters.

Raw log-probabilities, a temperature or a penalty of the server's own, shifted ids, exchanged answers, an
adapter that decoding lacks and prompts that are cut show. ``turn_causes.py`` finds which of them it is.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.engines.base import Request
from truing.engines.vllm.proof.canary import (
    CACHED_LENGTH,
    REMEDY,
    SEVERAL_ENGINES,
    TOLERANCE,
    largest,
    row_scores,
)
from truing.engines.vllm.proof.turn_causes import (
    Turn,
    alternatives,
    beginnings,
    distance,
    distances,
    exchanged,
    other_routes,
    turn_scores,
    without_routes,
)
from truing.engines.vllm.proof.turn_settings import Alternative
from truing.errors import PublicationError
from truing.models.forward.rounding_noise import random_rounding
from truing.models.forward.route_support import is_moe
from truing.models.forward.score import causal_model
from truing.models.lora import without_adapter
from truing.types.sampling_params import SamplingParams

SAME = 1e-5
"""Nats by which equally good alternatives differ."""

ROUNDING_TIMES = 10
"""Multiples of the difference of scored rows, or of the change by random rounding, of a cause that fits."""

LEFT = 0.25
"""Share of the difference that a cause may leave: within a wide tolerance other causes fit nearly as well."""

FARTHEST = 4
"""Multiples of the change by random rounding that a right turn stays below."""

ASKED_ALONE = 4
"""Times that a turn is sampled alone: behind one address, engines take turns or are chosen at random."""

UNKNOWN = "no known setting gives them"

UNADAPTED = "they are those of the base model without its adapter"


class Again(NamedTuple):
    """Further requests to the engine, to find the cause of a difference."""

    uncached: Callable[[], Sequence[Turn]]  # the same turns, without what the engine has cached
    alone: Callable[[Request], Turn]  # the same turn, with no other request in flight
    read: Callable[[Tensor], Tensor]  # of a row [T]: log-probabilities of all tokens but the first [T − 1]


def compare_turns(
    policy: nn.Module,
    turns: Sequence[Turn],
    params: SamplingParams,
    tolerance: float,
    again: Again,
    rounding: float,
) -> dict[str, Any]:
    """Compare the log-probabilities of sampled turns with the trainer's under the declared parameters.

    Args:
        policy: with the published weights.
        turns: what the engine sampled.
        params: the declared parameters.
        tolerance: nats that rounding explains in any model.
        again: asks the engine again, to find the cause.
        rounding: nats by which scored rows differ.
    """
    found = distance(policy, turns, params)
    if found <= tolerance:
        lengths = {
            "tokens": sum(len(turn.token_ids) for _, turn in turns),
            "longest": max(len(request.prompt_ids) for request, _ in turns),
            "truncated": params.truncates_support,
        }
        return {"largest": found, **lengths}
    most = min(tolerance, LEFT * found)
    near = min(most, _rounding_here(policy, turns, params, tolerance, rounding))
    cause = _cause(policy, turns, params, near, again)
    if cause == UNKNOWN and near < most:
        cause = _cause(policy, turns, params, most, again)
    raise PublicationError(
        f"the engine's log-probabilities are not those of the declared sampling parameters: {cause}",
        got=f"a difference of up to {found:.3g} nats",
        expected=f"at most {tolerance:.3g} nats under {params}",
        remedy=REMEDY,
    )


def check_adapted(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, dtype: torch.dtype
) -> None:
    """Raise if turns are those of the base without its adapter, as of another engine behind one address.

    In another dtype than float32 they may be within the tolerance of any model. Then rounding is measured.

    Args:
        policy: with the published adapter.
        turns: what the engine sampled.
        params: the declared parameters.
        dtype: of the engine.
    """
    unadapted = _of_base(policy, turns, params)
    if not unadapted:
        return
    found = distance(policy, unadapted, params)
    exact = turn_scores(policy, turns, params)
    with random_rounding(policy, seed=0, dtype=dtype):
        rounding = largest(turn_scores(policy, turns, params) - exact)
    if found > FARTHEST * rounding:
        cause = UNADAPTED if len(unadapted) == len(turns) else SEVERAL_ENGINES
        raise PublicationError(
            f"the engine's log-probabilities are not those of the published weights: {cause}",
            got=f"{len(unadapted)} of {len(turns)} turns that differ by up to {found:.3g} nats, and less from"
            " the base model",
            expected=f"at most {FARTHEST * rounding:.3g} nats",
            remedy=REMEDY,
        )


def _of_base(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> list[Turn]:
    """Return the turns that are much nearer to the base without its adapter."""
    own = distances(policy, turns, params)
    with without_adapter(policy):
        of_base = distances(policy, turns, params)
    return [turn for turn, a, b in zip(turns, own, of_base, strict=True) if b <= LEFT * a and b < math.inf]


def _rounding_here(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, most: float, rounding: float
) -> float:
    """Return the nats that rounding explains in this model, at most ``most``, to tell causes apart.

    In bfloat16 ``most`` is that of any model. Where log-probabilities hardly differ, wrong causes are within
    it too. In a mixture rounding may select other experts.
    """
    if most <= TOLERANCE["float32"] or is_moe(causal_model(policy)):
        return most
    exact = turn_scores(policy, turns, params)
    with random_rounding(policy, seed=0):
        rounded = turn_scores(policy, turns, params)
    own = largest(rounded - exact)
    return min(most, max(TOLERANCE["float32"], ROUNDING_TIMES * max(rounding, own)))


def _cause(
    policy: nn.Module,
    turns: Sequence[Turn],
    params: SamplingParams,
    tolerance: float,
    again: Again,
) -> str:
    """Return why turns may have other log-probabilities."""
    if words := nearest(_swapped(policy, turns, params), tolerance) or _base_cause(
        policy, turns, params, tolerance
    ):
        return words
    short = [(request, turn) for request, turn in turns if len(request.prompt_ids) <= CACHED_LENGTH]
    if distance(policy, short, params) <= tolerance:
        return _cause_of_long(policy, turns, params, tolerance)
    if words := nearest(alternatives(policy, short, params), tolerance):
        return words
    if distance(policy, without_routes(short), params) <= tolerance:
        return "its expert routes are not those with which it computed"
    if distance(policy, again.uncached(), params) <= tolerance:
        return "its prefix cache answers with keys and values of other weights"
    # of a mixture a share of all tokens is compared, so each turn alone may agree
    different = [each for each in short if not distance(policy, [each], params) <= tolerance] or short
    if words := _alone(policy, different[0], params, tolerance, again):
        return words
    if position := _misread(policy, different, tolerance, again):
        return (
            f"from position {position} on it computes something else, also where it reads: positions, or a"
            " window of attention"
        )
    if distance(policy, beginnings(short), params) <= tolerance:
        return "it decodes with something else than it reads prompts with: only first tokens agree"
    return UNKNOWN


def _base_cause(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, tolerance: float) -> str:
    """Return the cause if the base without its adapter gives the turns that differ; "" if it does not."""
    unadapted = _of_base(policy, turns, params) if isinstance(policy, PeftModel) else []
    if len(unadapted) == len(turns):
        return UNADAPTED
    others = [turn for turn in turns if turn not in unadapted]
    agree = bool(unadapted) and distance(policy, others, params) <= tolerance
    return SEVERAL_ENGINES if agree else ""


def _alone(policy: nn.Module, turn: Turn, params: SamplingParams, tolerance: float, again: Again) -> str:
    """Return why a turn may be right if no other request is in flight; "" if it never is.

    It has the same seed: where an engine is wrong at some ids alone, other ids would be right by chance.
    """
    right = [distance(policy, [again.alone(turn[0])], params) <= tolerance for _ in range(ASKED_ALONE)]
    if all(right):
        return "beside other requests it computes something else than alone"
    return SEVERAL_ENGINES if any(right) else ""


def _misread(policy: nn.Module, turns: Sequence[Turn], tolerance: float, again: Again) -> int | None:
    """Return the first position at which the engine scores a turn otherwise where it is a prompt; from 1."""
    positions = list[int]()
    for request, turn in turns:
        row = torch.cat([request.prompt_ids, turn.token_ids])
        apart = (again.read(row) - row_scores(policy, [row])).abs() > tolerance
        positions += [int(apart.nonzero()[0]) + 1] if apart.any() else []
    return min(positions, default=None)


def _swapped(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams) -> Iterator[Alternative]:
    """Yield answers and expert routes in other places: in bfloat16 both may be within the tolerance."""
    yield exchanged(policy, turns, params), "answers of two requests are exchanged"
    yield from other_routes(policy, turns, params)


def _cause_of_long(policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, tolerance: float) -> str:
    """Return why only the turn after a long prompt may have other log-probabilities."""
    long = [(request, turn) for request, turn in turns if len(request.prompt_ids) > CACHED_LENGTH]
    # the few tokens of one turn tell parameters apart in float32 alone; those of all turns also if far off
    exact = tolerance <= TOLERANCE["float32"]
    if exact and (words := nearest(alternatives(policy, long, params), tolerance)):
        return f"after a long prompt {words}"
    far = distance(policy, long, params) > ROUNDING_TIMES * tolerance
    if far and (words := nearest(alternatives(policy, turns, params), tolerance)):
        return words
    longest = max(len(request.prompt_ids) for request, _ in long)
    return (
        f"only the turn after a prompt of {longest} tokens differs, so the prompt is cut,"
        " or attention or positions are configured otherwise"
        + ("" if exact else ", or a penalty acts on ids that this turn alone repeats")
    )


def nearest(alternatives: Iterable[Alternative], tolerance: float) -> str:
    """Return the first of the alternatives that are as near as the nearest one; "" if none is near."""
    fitting = [each for each in alternatives if each[0] <= tolerance]
    closest = min((distance for distance, _ in fitting), default=0.0)
    return next((words for distance, words in fitting if distance <= 2 * closest + SAME), "")
