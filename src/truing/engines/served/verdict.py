"""What a server's log-probabilities say of its weights.

Of two candidates a (expected) and b, the server's s lies at s = b + λ (a − b) + noise. λ is 1 if it has a, 0
if it has b, and between them if an adapter is scaled otherwise. Its standard error says whether that could be
told.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

TEMPERATURES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0)

CLEAR = 0.1
"""The largest standard error of λ with which 0 and 1 are told apart."""

ERRORS, LEAST = 4.0, 0.02
"""Standard errors within which λ is 0 or 1; and not less than this."""

MEDIAN = 0.05
"""Nats: an engine in bfloat16 has a median of 0.03."""

WARMER = 0.25
"""Of the median difference: another temperature explains the rest."""

Said = Literal["served", "other", "scaled", "temperature", "none", "cannot tell"]


class Share(NamedTuple):
    """Where the server lies between another candidate (0) and the expected weights (1)."""

    of_change: float  # λ
    error: float  # its standard error
    change: float  # root mean square of a − b, nats

    @property
    def shown(self) -> float:
        """The smallest change that these tokens would have shown, nats."""
        return self.change * self.error / CLEAR


class Seen(NamedTuple):
    """The comparison of a server with all candidates."""

    median: Mapping[str, float]  # |server − candidate|, nats
    shares: Mapping[str, Share]  # of each candidate but the expected one
    temperature: float  # with which the nearest candidate fits best
    at_temperature: float  # the median difference there
    tokens: int

    @property
    def nearest(self) -> str:
        """The candidate with the smallest median difference."""
        return min(self.median, key=lambda name: self.median[name])


def compare(server: Tensor, logits: Mapping[str, Tensor], ids: Tensor, expected: str) -> Seen:
    """Compare a server with candidates.

    Args:
        server: [n] nats, of n tokens.
        logits: [n, V] of each candidate, before each of the tokens.
        ids: [n] int64, the tokens.
        expected: the name of the candidate that should be served.
    """
    server = server.double()
    scores = {name: _logprob(each, ids, 1.0) for name, each in logits.items()}
    median = {name: float((server - each).abs().median()) for name, each in scores.items()}
    shares = {
        name: share_of(server, scores[expected], other) for name, other in scores.items() if name != expected
    }
    nearest = min(median, key=lambda name: median[name])
    by_temperature = {
        t: float((server - _logprob(logits[nearest], ids, t)).abs().median()) for t in TEMPERATURES
    }
    best = min(by_temperature, key=lambda t: by_temperature[t])
    return Seen(median, shares, best, by_temperature[best], len(ids))


def share_of(server: Tensor, expected: Tensor, other: Tensor) -> Share:
    """Return λ and its standard error, all [n] nats; NaN where both candidates are equal.

    The error is that of least squares with any variances (https://doi.org/10.2307/1912934).
    """
    change, moved = expected - other, server - other
    square = float(change.square().sum())
    if not square:
        return Share(math.nan, math.inf, 0.0)
    share = float((moved * change).sum()) / square
    left = moved - share * change
    error = math.sqrt(float((left * change).square().sum())) / square
    return Share(share, error, float(change.square().mean().sqrt()))


def verdict(seen: Seen, expected: str) -> tuple[Said, str]:
    """Return what the comparison says, and a sentence."""
    nearest = seen.median[seen.nearest]
    if seen.temperature != 1.0 and seen.at_temperature < WARMER * nearest and nearest > MEDIAN / 5:
        return "temperature", (
            f"its log-probabilities are those of a temperature of {seen.temperature:g}"
            f" (median difference {seen.at_temperature:.2g} nats there, {nearest:.2g} at 1)"
        )
    places = {name: place(share) for name, share in seen.shares.items()}
    for name, at in places.items():
        if at == "at the other":
            return "other", f"it does not serve {expected}: {name} fits, or weights near it"
    far = seen.median[expected] > MEDIAN
    if far and set(places.values()) != {"at the expected"}:
        return (
            "none",
            f"it serves none of these weights: the nearest differ by a median of {nearest:.2g} nats",
        )
    for name, at in places.items():
        if at == "between":
            share = seen.shares[name]
            return "scaled", (
                f"it has {share.of_change:.2f} ± {share.error:.2f} of the change from {name} to {expected}:"
                " another scale of the adapter, or weights between the two"
            )
    if unclear := [name for name, at in places.items() if at == "not told"]:
        least = max((seen.shares[name] for name in unclear), key=lambda share: share.error)
        told = f"it may serve {expected}, or {' or '.join(unclear)}"
        if not least.change:
            return "cannot tell", f"{told}, which has the same log-probabilities"
        more = math.ceil(seen.tokens * (least.error / CLEAR) ** 2 / 100) * 100
        return "cannot tell", (
            f"{told}: they differ by {least.change:.2g} nats, and {least.shown:.2g} would show;"
            f" some {more} tokens would tell"
        )
    rounding = "; so far off, it computes in a coarser precision" if far else ""
    return (
        "served",
        f"it serves {expected}: a median difference of {seen.median[expected]:.2g} nats{rounding}",
    )


def place(
    share: Share, errors: float = ERRORS
) -> Literal["at the expected", "at the other", "between", "not told"]:
    """Return where λ is, up to so many of its standard errors."""
    within = max(errors * share.error, LEAST)
    if not share.error <= CLEAR:
        return "not told"
    if abs(share.of_change - 1) <= within:
        return "at the expected"
    return "at the other" if abs(share.of_change) <= within else "between"


def _logprob(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """Return the log-probability of each token at a temperature: [n] float64."""
    scaled = logits.double() / temperature
    return scaled.gather(1, ids[:, None])[:, 0] - torch.logsumexp(scaled, 1)
