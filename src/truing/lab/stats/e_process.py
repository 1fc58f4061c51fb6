"""E-processes on paired differences, valid at any stopping time; ``bets.py`` has the bets.

With a bound ``within`` on the size of a difference, the bets are on the mean, for every distribution.
Without one (``within`` is None), they are on signs: valid if differences are symmetric about the effect, as
they are about 0 if the arm has no effect. The bounds of an effect enclose the values that are not refuted.
"""

import numpy as np
from numpy.typing import ArrayLike

from truing.lab.stats.bets import Floats, mean_bet_wealth, sign_bet_wealth

FAR_SPREADS = 1e6
"""A bound this many spreads away sees all differences as equal."""


def wealth(differences_DN: ArrayLike, bound: float = 0.0, within: float | None = None) -> Floats:
    """Return the wealth after each pair, ``[…, N]``, of bets that the effect is above a bound."""
    if within is None:
        return sign_bet_wealth(np.asarray(differences_DN, dtype=float) - bound)
    return mean_bet_wealth(differences_DN, bound, within)


def max_wealth(differences_DN: ArrayLike, bound: float = 0.0, within: float | None = None) -> Floats:
    """Return the largest wealth so far, ``[…]``; 1 before the first pair."""
    return wealth(differences_DN, bound, within).max(axis=-1, initial=1.0)


def is_above(differences_N: ArrayLike, bound: float, error: float, within: float | None = None) -> bool:
    """Whether the effect is proven to be above a bound, with error probability ``error``."""
    return bool(max_wealth(differences_N, bound, within) * error >= 1)


def is_below(differences_N: ArrayLike, bound: float, error: float, within: float | None = None) -> bool:
    """Whether the effect is proven to be below a bound, with error probability ``error``."""
    return is_above(-np.asarray(differences_N, dtype=float), -bound, error, within)


def lower_bound(differences_N: ArrayLike, error: float, within: float | None = None) -> float:
    """Return a lower bound of the effect, with error probability ``error``; −∞ if there is none."""
    data = np.asarray(differences_N, dtype=float)
    if len(data) == 0:
        return -np.inf
    spread = max(float(np.ptp(data)), 1e-9 * float(np.abs(data).max()), 1e-12)
    low, high = data.min() - FAR_SPREADS * spread, data.max() + spread
    if within is not None:
        low, high = -within, max(high, within)
    if not is_above(data, low, error, within):
        return -np.inf
    for _ in range(80):
        middle = (low + high) / 2
        if middle in (low, high):  # no number is between them
            break
        low, high = (middle, high) if is_above(data, middle, error, within) else (low, middle)
    return float(low)


def upper_bound(differences_N: ArrayLike, error: float, within: float | None = None) -> float:
    """Return an upper bound of the effect, with error probability ``error``."""
    return -lower_bound(-np.asarray(differences_N, dtype=float), error, within)


def min_pairs(error: float, within: float | None = None) -> int:
    """Return the fewest pairs that can prove the sign of an effect, however large it is."""
    pairs, largest = 1, 1.0 if within is None else within
    while wealth(np.full(pairs, largest), 0.0, within)[-1] * error < 1:
        pairs += 1
    return pairs


def is_futile(
    differences_N: ArrayLike, bound: float, seeds: int, error: float, within: float | None = None
) -> bool:
    """Whether the remaining pairs, within the known bound, cannot prove the side of the effect."""
    data = np.asarray(differences_N, dtype=float)
    return all(
        _max_reachable_wealth(signed_data, signed_bound, seeds, within) * error < 1
        for signed_data, signed_bound in ((data, bound), (-data, -bound))
    )


def _max_reachable_wealth(data: Floats, bound: float, seeds: int, within: float | None) -> float:
    """Return the largest wealth that is possible once all pairs are there."""
    largest, remaining = float(max_wealth(data, bound, within)), seeds - len(data)
    if within is not None:
        best_data = np.concatenate([data, np.full(remaining, max(within, bound))])
        return max(largest, float(max_wealth(best_data, bound, within)))
    current = float(wealth(data, bound, within)[-1]) if len(data) else 1.0
    return max(largest, current * 2.0**remaining)  # a pair doubles wealth at most
