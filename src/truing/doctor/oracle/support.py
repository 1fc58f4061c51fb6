"""Top-k, top-p and min-p, computed a second time: which recorded sets of possible ids are the declared ones.

The order is top-k, top-p, min-p, on probabilities at the declared temperature, each on the renormalized rest
(https://arxiv.org/abs/1904.09751, https://arxiv.org/abs/2407.01082). Rounding decides at the edge of a set.
So two sets are computed: ids that every distribution within ε nats keeps, and ids that at least one keeps.
"""

import math

import torch
from torch import Tensor

from truing.types.sampling_params import SamplingParams

EPSILONS = (1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Nats; the last is beyond any rounding."""


def support_distance(scores_V: Tensor, params: SamplingParams, kept_V: Tensor) -> float:
    """Return by how many nats log-probabilities would have to differ to give a recorded set of ids.

    Args:
        scores_V: [V] logits with penalties, bans and temperature, before any truncation, nats.
        params: the declared sampling parameters.
        kept_V: [V] bool, the recorded set of possible ids.

    Returns:
        0 if the smallest of ``EPSILONS`` explains the set; ∞ if none does.
    """
    sorted_V, order_V = scores_V.double().sort(descending=True)
    kept_V = kept_V[order_V]
    for epsilon in EPSILONS:
        surely_V, perhaps_V = (_kept(sorted_V, params, sign * epsilon) for sign in (-1, 1))
        if not ((surely_V & ~kept_V) | (kept_V & ~perhaps_V)).any():
            return 0.0 if epsilon == EPSILONS[0] else epsilon
    return math.inf


def _kept(sorted_V: Tensor, params: SamplingParams, epsilon: float) -> Tensor:
    """Return the ids that truncation may keep if log-probabilities differ by ε, or with ε < 0 must: [V] bool.

    ``sorted_V`` are falling. Two ids may change places if they are within 2 |ε|, and a mass changes its odds
    by a factor of e^{2 |ε|} at most.
    """
    may, factor = epsilon > 0, math.exp(-2 * epsilon)
    # with ε > 0 those ahead whatever happens; with ε < 0 all that may be, and itself
    ahead_V = torch.searchsorted(-sorted_V, -(sorted_V + 2 * epsilon), right=not may)
    kept_V = sorted_V > -math.inf
    if params.top_k:
        kept_V = kept_V & (ahead_V < params.top_k + (not may))
    if params.top_p < 1:
        mass_V = torch.where(kept_V, (sorted_V - sorted_V[0]).exp(), 0.0)
        up_to_V = torch.cat([mass_V.new_zeros(1), mass_V.cumsum(0)])
        before_V = up_to_V[ahead_V] - (0.0 if may else mass_V)
        kept_V = kept_V & (before_V * factor * (1 - params.top_p) < params.top_p * (up_to_V[-1] - before_V))
    if params.min_p:
        kept_V = kept_V & (sorted_V >= sorted_V[0] + math.log(params.min_p) - 2 * epsilon)
    return kept_V
