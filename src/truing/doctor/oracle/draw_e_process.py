"""An anytime-valid test of whether tokens follow the declared distribution, by betting.

If token a was sampled from p, then for any feature f of it and any λ, e^{λ f(a)} / E_p[e^{λ f}] has mean 1.
The product over tokens is the wealth of a fair game, for any number of checks: the probability that it ever
exceeds W is at most 1/W (Ville; https://arxiv.org/abs/2210.01948). A feature that the real sampler favours
makes it grow, and names the cause. Several λ run at the same time, with equal shares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NUCLEUS_MASSES = (0.9, 0.95)
"""Masses whose complement a truncated sampler never samples."""

EARLY_TOKENS, FIRST_TOKENS = 16, 3
"""First tokens of a turn with possibly banned stops, and with a possibly forced prefix."""

MIN_LOGPROB = -30.0
"""Nats; smaller log-probabilities count as this, so that one token cannot decide everything."""

LAMBDAS = {
    "temperature": (-1.0, -0.5, -0.2, -0.1, -0.05, -0.02, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "forced prefix": (-1.0, -0.5, 0.5),
    **dict.fromkeys(
        (
            "top-p 0.9",
            "top-p 0.95",
            "penalty on the answer",
            "penalty on the prompt",
            "ban of stops",
            "greedy",
        ),
        (-4.0, -2.0, -1.0, -0.3, -0.1, 0.1, 0.3, 1.0, 2.0),
    ),
}
"""λ by feature, in both signs: a real sampler may favour or avoid it."""


@dataclass(frozen=True, eq=False)
class DrawnTokens:
    """K sampled tokens: the declared distribution of each, and its context."""

    logprob_KV: Tensor  # of every id; −inf for impossible ones
    token_K: Tensor  # [K] int64, the sampled ids
    index_K: Tensor  # [K] int64, earlier tokens of the turn
    seen_KV: Tensor  # [K, V] bool, earlier ids of the turn
    prompt_KV: Tensor  # [K, V] bool, ids of the prompt
    stop_ids: Sequence[int]


def features(drawn: DrawnTokens) -> dict[str, Tensor]:
    """Return the value of each feature for every possible id, [K, V] float; bool for 0 and 1."""
    logp, (count, vocab) = drawn.logprob_KV, drawn.logprob_KV.shape
    sorted_p, order = logp.exp().sort(dim=1, descending=True)
    before = sorted_p.cumsum(1) - sorted_p
    none_KV = torch.zeros(count, vocab, dtype=torch.bool, device=logp.device)
    stop_V = torch.zeros(vocab, dtype=torch.bool, device=logp.device)
    stop_V[list(drawn.stop_ids)] = True
    best = none_KV.scatter(1, logp.argmax(1, keepdim=True), True)
    early, first = (drawn.index_K < EARLY_TOKENS)[:, None], (drawn.index_K < FIRST_TOKENS)[:, None]
    outside = {f"top-p {mass:g}": none_KV.scatter(1, order, before >= mass) for mass in NUCLEUS_MASSES}
    return {
        "temperature": logp.clamp(min=MIN_LOGPROB),
        "forced prefix": logp.clamp(min=MIN_LOGPROB) * first,
        **outside,
        "penalty on the answer": drawn.seen_KV,
        "penalty on the prompt": drawn.prompt_KV & ~drawn.seen_KV,
        "ban of stops": stop_V & early,
        "greedy": best,
    }


def log_wealth_increments(drawn: DrawnTokens) -> dict[str, list[float]]:
    """Return the gain of the log wealth over the K tokens, nats, by feature and λ; gains add up."""
    gains = {}
    for name, f_KV in features(drawn).items():
        f_K = f_KV.gather(1, drawn.token_K[:, None])[:, 0].double()
        if f_KV.dtype is torch.bool:
            mass_K = torch.where(f_KV, drawn.logprob_KV.exp(), 0.0).sum(1).clamp(0.0, 1.0)
            expected = [torch.log1p(mass_K * math.expm1(strength)) for strength in LAMBDAS[name]]
        else:
            expected = [
                torch.logsumexp(drawn.logprob_KV + strength * f_KV, dim=1) for strength in LAMBDAS[name]
            ]
        gains[name] = [
            float((strength * f_K - log_K).sum())
            for strength, log_K in zip(LAMBDAS[name], expected, strict=True)
        ]
    return gains


def log10_wealth(gains: Sequence[float]) -> float:
    """Return the wealth of all λ of a feature together, each with an equal share."""
    total = torch.tensor(gains, dtype=torch.float64)
    return (float(torch.logsumexp(total, 0)) - math.log(len(gains))) / math.log(10)
