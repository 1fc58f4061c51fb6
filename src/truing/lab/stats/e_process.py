"""Evidence by bets on paired differences, which holds whenever one stops looking; ``wealth.py`` has the bets.

Where it is known how far a pair can lie from 0, ``within``, they are on the mean, whatever the distribution.
Where it is not, ``within`` is None, they are on signs: right where differences are symmetric about the
effect, as they are about 0 if the arm does nothing. The bounds of an effect are those that are not refuted.
"""

import numpy as np
from numpy.typing import ArrayLike

from truing.lab.stats.bets import Floats, mean_bet_wealth, sign_bet_wealth

FAR_SPREADS = 1e6
"""So many times the spread of the differences away, all of them are as good as equal."""


def wealth(differences_DN: ArrayLike, bound: float = 0.0, within: float | None = None) -> Floats:
    """What is left of 1 after each pair, ``[…, N]``, by bets that the effect is above a bound."""
    if within is None:
        return sign_bet_wealth(np.asarray(differences_DN, dtype=float) - bound)
    return mean_bet_wealth(differences_DN, bound, within)


def max_wealth(differences_DN: ArrayLike, bound: float = 0.0, within: float | None = None) -> Floats:
    """The most that wealth ever was, ``[…]``; 1 before the first pair."""
    return wealth(differences_DN, bound, within).max(axis=-1, initial=1.0)


def is_above(differences_N: ArrayLike, bound: float, error: float, within: float | None = None) -> bool:
    """Whether the effect is proven to be above a bound, but for a chance of ``error``."""
    return bool(max_wealth(differences_N, bound, within) * error >= 1)


def is_below(differences_N: ArrayLike, bound: float, error: float, within: float | None = None) -> bool:
    """The same from the other side."""
    return is_above(-np.asarray(differences_N, dtype=float), -bound, error, within)


def lower_bound(differences_N: ArrayLike, error: float, within: float | None = None) -> float:
    """The effect is above this, but for a chance of ``error``; −∞ where nothing says so."""
    data = np.asarray(differences_N, dtype=float)
    if len(data) == 0:
        return -np.inf
    spread = max(float(np.ptp(data)), 1e-9 * float(np.abs(data).max()), 1e-12)
    refuted, open_ = data.min() - FAR_SPREADS * spread, data.max() + spread
    if within is not None:
        refuted, open_ = -within, max(open_, within)
    if not is_above(data, refuted, error, within):
        return -np.inf
    for _ in range(80):
        middle = (refuted + open_) / 2
        refuted, open_ = (middle, open_) if is_above(data, middle, error, within) else (refuted, middle)
    return float(refuted)


def upper_bound(differences_N: ArrayLike, error: float, within: float | None = None) -> float:
    """The effect is below this, but for a chance of ``error``."""
    return -lower_bound(-np.asarray(differences_N, dtype=float), error, within)


def min_pairs(error: float, within: float | None = None) -> int:
    """The pairs without which the sign of an effect is not proven, however clear they are."""
    pairs, most_ = 1, 1.0 if within is None else within
    while wealth(np.full(pairs, most_), 0.0, within)[-1] * error < 1:
        pairs += 1
    return pairs


def is_futile(
    differences_N: ArrayLike, bound: float, seeds: int, error: float, within: float | None = None
) -> bool:
    """Whether pairs that are to come, none farther from 0 than known, cannot prove on which side it lies."""
    data = np.asarray(differences_N, dtype=float)
    return all(
        _max_reachable_wealth(side, at, seeds, within) * error < 1
        for side, at in ((data, bound), (-data, -bound))
    )


def _max_reachable_wealth(data: Floats, bound: float, seeds: int, within: float | None) -> float:
    """The most that wealth can have been when all pairs are there."""
    reached, left = float(max_wealth(data, bound, within)), seeds - len(data)
    if within is not None:
        best = np.concatenate([data, np.full(left, max(within, bound))])
        return max(reached, float(max_wealth(best, bound, within)))
    now = float(wealth(data, bound, within)[-1]) if len(data) else 1.0
    return max(reached, now * 2.0**left)  # a pair doubles wealth at most
