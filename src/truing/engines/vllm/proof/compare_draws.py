"""How a server samples, beyond the log-probabilities of its turns, which are right by then.

Does it follow seeds, and draw at all? Does it keep the ids that the declared parameters keep? The trainer
scores a token among the ids that the engine kept, so log-probabilities do not show it. And does it read the
beginning of a long prompt, which in bfloat16 may change less than rounding? The server samples once more
after another beginning, with the same seed: an answer that is the same to the last bit does not depend on it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from truing.engines.vllm.proof.compare_turns import REMEDY
from truing.engines.vllm.proof.prompts import PART
from truing.engines.vllm.proof.scores import (
    MIXTURE_SHARE,
    Turn,
    change_by_rounding,
    largest,
    likeliest_ids,
    turn_scores,
)
from truing.engines.vllm.proof.turn_causes import TurnLogits, turn_logits
from truing.errors import PublicationError
from truing.models.forward.route_support import is_moe
from truing.models.forward.score import causal_model
from truing.ops.sampling import support_mask
from truing.types.sampling_params import SamplingParams

CERTAIN = math.log(1e9)
"""Nats by which equal answers must be unlikely."""

REPEATED = 0.5
"""Share of first ids that equal seeds repeat at least: near a tie rounding changes one."""

BEGINNING_TIMES = 3
"""Multiples of the change by random rounding, of a beginning that matters."""

HIGHEST = 1 - 1e-6
"""Largest min-p that keeps an id."""

SHOWN = 8
"""Numbers of ids that an error shows."""


def follow_seeds(turns: Sequence[Turn], again: Sequence[Turn]) -> bool:
    """Return whether the first turns, sampled again with equal seeds, begin with equal ids."""
    same = [bool(turns[i][1].token_ids[0] == turn.token_ids[0]) for i, (_, turn) in enumerate(again)]
    return sum(same) >= REPEATED * len(same)


def check_drawn(
    policy: nn.Module, turns: Sequence[Turn], again: Sequence[Turn], params: SamplingParams
) -> None:
    """Raise unless turns after equal prompts, with other seeds, have ids of their own.

    Args:
        policy: with the published weights.
        turns: of the first time.
        again: of the second time, in the same order.
        params: the declared parameters.
    """
    nats = -sum(float(turn.logprob.sum()) for _, turn in again)
    if nats <= CERTAIN:
        return
    expected = f"other ids: the chance of equal ones is e^-{nats:.3g}"
    if all(likeliest_ids(policy, [*turns, *again], params)):
        raise PublicationError(
            "the engine does not sample: each id is the likeliest one, as in greedy decoding",
            got=f"{sum(len(turn.token_ids) for _, turn in again)} ids, all the likeliest",
            expected=expected,
            remedy="something between trainer and engine sets the temperature to 0; " + REMEDY,
        )
    if all(
        turn.token_ids.equal(second.token_ids) for (_, turn), (_, second) in zip(turns, again, strict=True)
    ):
        raise PublicationError(
            "the engine gives equal answers to equal prompts, although their seeds differ",
            got=f"the same ids twice after {len(again)} prompts",
            expected=expected,
            remedy="something between trainer and engine sets the seed, or answers from a cache; " + REMEDY,
        )


def compare_beginnings(policy: nn.Module, turn: Turn, other: Turn, params: SamplingParams) -> None:
    """Raise if a turn is the same after a prompt with another beginning, and the trainer's is not.

    Args:
        policy: with the published weights.
        turn: after a long prompt.
        other: after the prompt with another beginning, with the same seed.
        params: the declared parameters.
    """
    (request, answer), (changed, second) = turn, other
    if not (answer.token_ids.equal(second.token_ids) and answer.logprob.equal(second.logprob)):
        return
    after_other = replace(request, prompt_ids=changed.prompt_ids), answer
    moved = largest(turn_scores(policy, [after_other], params) - turn_scores(policy, [turn], params))
    rounding = change_by_rounding(policy, lambda: turn_scores(policy, [turn], params))
    if moved > BEGINNING_TIMES * rounding:
        length = len(request.prompt_ids)
        raise PublicationError(
            f"the engine's log-probabilities are not those of the whole prompt of {length} tokens: it answers"
            f" without the first {length // PART}",
            got="the same log-probabilities to the last bit after another beginning",
            expected=f"a change of about {moved:.2g} nats; rounding changes {rounding:.2g}",
            remedy=REMEDY,
        )


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
    logits = turn_logits(policy, turns)
    supports = [turn.support.at(i) for _, turn in turns for i in range(len(turn.token_ids)) if turn.support]
    kept_KV = support_mask(supports, logits.logits_KV.shape[1])
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
    return "not the likeliest ones"


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
