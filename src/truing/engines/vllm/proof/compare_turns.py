"""Compare log-probabilities of a fixed row and of sampled turns with the trainer's.

The row is scored without sampling, and also compared with scores of earlier weights and of the base. Turns
are sampled: there the declared sampling parameters act too. ``turn_causes.py`` finds why turns differ.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.engines.vllm.proof.scores import (
    TOLERANCE,
    Turn,
    change_by_rounding,
    distance,
    distances,
    largest,
    turn_scores,
)
from truing.engines.vllm.proof.turn_causes import (
    LEFT,
    SEVERAL_ENGINES,
    UNADAPTED,
    UNKNOWN,
    Uncached,
    turns_cause,
    turns_of_base,
)
from truing.errors import PublicationError
from truing.models.forward.route_support import is_moe
from truing.models.forward.score import causal_model
from truing.types.sampling_params import SamplingParams

REPEATS = 3
"""Times that rows are scored again if they differ."""

NEAR_TIMES = 10
"""Multiples of the difference of scored rows, or of the change by random rounding, of a cause that fits."""

FARTHEST = 4
"""Multiples of the change by random rounding that a right turn stays below."""

OTHER_FORWARD = "its layers have these weights, so it computes something else with them"

REMEDY = "nothing was sampled for training: `truing explain vllm` says what each cause means"


def compare_rows(
    found: Tensor,
    published: Tensor,
    others: Mapping[str, Tensor],
    tolerance: float,
    again: Callable[[], Tensor],
    share: float = 1.0,
) -> dict[str, Any]:
    """Return how far the engine's scores are from the published weights'; raise if beyond rounding.

    Args:
        found: the engine's log-probabilities.
        published: the trainer's.
        others: the trainer's of other weights, by what they are, in words; the likeliest cause first.
        tolerance: nats that rounding explains.
        again: scores them again, to find the cause.
        share: of tokens that must be within it.
    """
    apart = largest(found - published, share)
    if apart <= tolerance:
        distinguished = [
            name for name, scores in others.items() if largest(published - scores, share) > 2 * tolerance
        ]
        median = float((found - published).abs().median())
        receipt = {"largest": apart, "median": median, "tolerance": tolerance}
        return receipt | {"told_apart_from": distinguished}
    apart_from = {name: largest(found - scores, share) for name, scores in others.items()}
    stale = [name for name, each in apart_from.items() if each <= tolerance]
    if any(largest(again() - published) <= tolerance for _ in range(REPEATS)):
        cause = SEVERAL_ENGINES
    else:
        cause = f"it scores with {stale[0]}" if stale else OTHER_FORWARD
    raise PublicationError(
        f"the engine does not score with the published weights: {cause}",
        got=f"canary rows differ by up to {apart:.3g} nats from the published weights"
        + "".join(f", {each:.2g} from {name}" for name, each in apart_from.items()),
        expected=f"at most {tolerance:g} nats",
        remedy=REMEDY,
    )


def compare_turns(
    policy: nn.Module,
    turns: Sequence[Turn],
    params: SamplingParams,
    tolerance: float,
    uncached: Uncached,
    rounding: float,
) -> dict[str, Any]:
    """Compare the log-probabilities of sampled turns with the trainer's under the declared parameters.

    Args:
        policy: with the published weights.
        turns: what the engine sampled.
        params: the declared parameters.
        tolerance: nats that rounding explains in any model.
        uncached: samples them again, to find the cause.
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
    cause = turns_cause(policy, turns, params, near, uncached)
    if cause == UNKNOWN and near < most:
        cause = turns_cause(policy, turns, params, most, uncached)
    each = zip(turns, distances(policy, turns, params), strict=True)
    after = [str(len(request.prompt_ids)) for (request, _), apart in each if not apart <= tolerance]
    where = f" in {len(after)} of {len(turns)} turns, after prompts of {', '.join(after)} ids"
    raise PublicationError(
        f"the engine's log-probabilities are not those of the declared sampling parameters: {cause}",
        got=f"a difference of up to {found:.3g} nats" + (where if after else ""),
        expected=f"at most {tolerance:.3g} nats under {params}",
        remedy=REMEDY,
    )


def check_adapted(
    policy: PeftModel, turns: Sequence[Turn], params: SamplingParams, dtype: torch.dtype
) -> None:
    """Raise if turns are those of the base without its adapter, as of another engine behind one address.

    In another dtype than float32 they may be within the tolerance of any model. Then rounding is measured.

    Args:
        policy: with the published adapter.
        turns: what the engine sampled.
        params: the declared parameters.
        dtype: of the engine.
    """
    unadapted = turns_of_base(policy, turns, params)
    if not unadapted:
        return
    found = distance(policy, unadapted, params)
    rounding = change_by_rounding(policy, lambda: turn_scores(policy, turns, params), dtype)
    if found > FARTHEST * rounding:
        cause = UNADAPTED if len(unadapted) == len(turns) else SEVERAL_ENGINES
        raise PublicationError(
            f"the engine's log-probabilities are not those of the published weights: {cause}",
            got=f"{len(unadapted)} of {len(turns)} turns that differ by up to {found:.3g} nats, and less from"
            " the base model",
            expected=f"at most {FARTHEST * rounding:.3g} nats",
            remedy=REMEDY,
        )


def _rounding_here(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, most: float, rounding: float
) -> float:
    """Return the nats that rounding explains in this model, at most ``most``, to tell causes apart.

    In bfloat16 ``most`` is that of any model. Where log-probabilities hardly differ, wrong causes are within
    it too. In a mixture rounding may select other experts.
    """
    if most <= TOLERANCE["float32"] or is_moe(causal_model(policy)):
        return most
    own = change_by_rounding(policy, lambda: turn_scores(policy, turns, params))
    return min(most, max(TOLERANCE["float32"], NEAR_TIMES * max(rounding, own)))
