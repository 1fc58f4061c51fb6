"""The ids among which each token was sampled: are they those that the declared parameters keep?

Log-probabilities do not show it: the trainer scores a token among the ids that the engine kept.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from truing.engines.vllm.proof.canary import MIXTURE_SHARE, REMEDY
from truing.engines.vllm.proof.turn_causes import Turn, turn_samples
from truing.engines.vllm.proof.turn_settings import TurnLogits, turn_logits
from truing.errors import PublicationError
from truing.models.forward.route_support import is_moe
from truing.models.forward.score import causal_model
from truing.ops.sampling import support_mask
from truing.types.sampling_params import SamplingParams

HIGHEST = 1 - 1e-6
"""Largest min-p that keeps an id."""

SHOWN = 8
"""Numbers of ids that an error shows."""


def compare_supports(
    policy: nn.Module, turns: Sequence[Turn], params: SamplingParams, tolerance: float
) -> None:
    """Raise unless the engine kept the ids that top-k, top-p and min-p keep, up to rounding.

    Args:
        policy: with the published weights.
        turns: with supports; their log-probabilities agree.
        params: the declared parameters.
        tolerance: nats by which rounding moves a log-probability.
    """
    logits = turn_logits(policy, turn_samples(turns, params), [turn.logprob for _, turn in turns])
    kept_KV = _kept(turns, logits.logits_KV.shape[1])
    fewest_KV, most_KV = _bounds(logits, params, tolerance)
    right_K = (
        (kept_KV.sum(1) >= fewest_KV.sum(1))  # of equal ones at the edge any may be left out
        & ~(_above(logits, params, fewest_KV, tolerance) & ~kept_KV).any(1)
        & ~(kept_KV & ~_above(logits, params, most_KV, -tolerance)).any(1)
    )
    share = MIXTURE_SHARE if is_moe(causal_model(policy)) else 1.0
    if int(right_K.sum()) >= share * len(right_K):
        return
    found_K, fewest_K, most_K = (mask[~right_K].sum(1) for mask in (kept_KV, fewest_KV, most_KV))
    shown, least, most = (each.tolist()[:SHOWN] for each in (found_K, fewest_K, most_K))
    raise PublicationError(
        "the engine samples among other ids than the declared parameters keep, "
        + _cause(found_K, fewest_K, most_K),
        got=f"{shown} ids, for {len(found_K)} of {len(right_K)} tokens",
        expected=f"{least if least == most else f'{least} to {most}'} under {params}",
        remedy=REMEDY,
    )


def _cause(found_K: Tensor, fewest_K: Tensor, most_K: Tensor) -> str:
    """Return which parameter the engine may have changed, by how many ids it keeps."""
    if bool((found_K > most_K).all()):
        return "more of them: as without top-p or min-p, or with a larger top-k"
    if bool((found_K < fewest_K).all()):
        return "fewer of them: as with a smaller top-k or top-p, or a larger min-p"
    return "not the likeliest ones: something between trainer and engine changes them"


def _kept(turns: Sequence[Turn], vocabulary: int) -> Tensor:
    """Return the ids that the engine kept: [K, V] bool."""
    supports = [turn.support.at(i) for _, turn in turns for i in range(len(turn.token_ids)) if turn.support]
    return support_mask(supports, vocabulary)


def _bounds(logits: TurnLogits, params: SamplingParams, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return the fewest and the most ids that are kept if rounding moves log-probabilities: [K, V] bool."""
    p, moved = params.top_p, math.exp(2 * tolerance)  # the odds of a set of ids move by at most this factor
    changes = (
        {"top_p": p / (p + moved * (1 - p)), "min_p": min(HIGHEST, params.min_p * moved)},
        {"top_p": p * moved / (p * moved + 1 - p), "min_p": params.min_p / moved},
    )
    fewest, most = (torch.isfinite(logits.processed(replace(params, **change))) for change in changes)
    return fewest, most


def _above(logits: TurnLogits, params: SamplingParams, kept_KV: Tensor, tolerance: float) -> Tensor:
    """Return the ids above the least likely one that is kept, by two tolerances: [K, V] bool."""
    logprob_KV = logits.processed(replace(params, top_k=0, top_p=1.0, min_p=0.0))
    least_K = logprob_KV.masked_fill(~kept_KV, math.inf).amin(1)
    return logprob_KV > least_K[:, None] + 2 * tolerance
