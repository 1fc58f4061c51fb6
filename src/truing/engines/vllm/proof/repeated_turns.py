"""Turns that a server samples a second time after the same prompts, with other seeds.

The second time its prefix cache holds the prompts. And answers that are the same in spite of other seeds show
that the server ignores them, decodes greedily, or does not compute them at all.
"""

import math
from collections.abc import Callable, Sequence

from torch import nn

from truing.engines.vllm.proof.canary import REMEDY
from truing.engines.vllm.proof.turn_causes import Turn, distance, likeliest_ids
from truing.errors import PublicationError
from truing.types.sampling_params import SamplingParams

CERTAIN = math.log(1e9)
"""Nats by which equal answers must be unlikely."""

REPEATED = 0.5
"""Share of first ids that equal seeds repeat at least: near a tie rounding changes one."""


def follow_seeds(turns: Sequence[Turn], again: Sequence[Turn]) -> bool:
    """Return whether the first turns, sampled again with equal seeds, begin with equal ids."""
    same = [bool(turns[i][1].token_ids[0] == turn.token_ids[0]) for i, (_, turn) in enumerate(again)]
    return sum(same) >= REPEATED * len(same)


def compare_repeated(
    policy: nn.Module,
    turns: Sequence[Turn],
    again: Sequence[Turn],
    params: SamplingParams,
    tolerance: float,
    uncached: Callable[[], Sequence[Turn]],
    compare: Callable[[Sequence[Turn]], object],
) -> None:
    """Raise unless the second turns have the trainer's log-probabilities, and ids of their own.

    Args:
        policy: with the published weights.
        turns: of the first time, whose log-probabilities agree.
        again: of the second time, in the same order.
        params: the declared parameters.
        tolerance: nats that rounding explains.
        uncached: samples the second turns without what the engine has cached.
        compare: raises an error with the cause unless turns are right.
    """
    largest = distance(policy, again, params)
    if not largest <= tolerance:
        compare(uncached())  # what is wrong without the cache too has another cause
        raise PublicationError(
            "the engine computes something else after a prompt that its prefix cache holds",
            got=f"a difference of up to {largest:.3g} nats",
            expected=f"at most {tolerance:g} nats, as without the cache",
            remedy="start it with --no-enable-prefix-caching; " + REMEDY,
        )
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
