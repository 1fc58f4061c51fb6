"""Bets on the signs of paired differences: evidence that holds whenever one stops looking.

Two arms are run with the same seeds. If the arm does nothing, nobody could tell which run of a pair is the
arm's, so each difference is as likely to be positive as negative, whatever the shape of its distribution:
two runs in three may collapse, or none. Somebody who bets on signs, at stakes that depend on sizes alone,
then wins nothing on average, and the chance that his wealth is *ever* 1/a times what he began with is at
most a (Ville's inequality). The bounds of an effect are the shifts that such bets do not refute.

Sources: Ramdas et al., Game-theoretic statistics and safe anytime-valid inference (2023),
https://arxiv.org/abs/2210.01948; Ramdas et al., Admissible anytime-valid sequential inference must rely on
nonnegative martingales (2020), https://arxiv.org/abs/2009.03167, on tests of symmetry.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

STAKES = (1.0, 2.0, 4.0)
"""Wealth is shared out equally: small stakes win on small effects, large ones when all signs agree."""

FAR = 1e6
"""So many times the spread of the differences away, all of them are as good as equal."""


def wealth(differences_DN: ArrayLike) -> Floats:
    """What is left of 1 after each pair, ``[…, N]``, by bets on positive signs.

    The stake on pair i is tanh(κ |d_i| ÷ mean of |d_1| … |d_i|): known from sizes before the sign is seen.
    """
    differences_DN = np.asarray(differences_DN, dtype=float)
    size_DN = np.abs(differences_DN)
    mean_DN = np.cumsum(size_DN, axis=-1) / np.arange(1, differences_DN.shape[-1] + 1)
    share_DN = np.divide(size_DN, mean_DN, out=np.zeros_like(size_DN), where=mean_DN > 0)
    stake_DNK = np.tanh(share_DN[..., None] * np.asarray(STAKES))
    return np.cumprod(1 + np.sign(differences_DN)[..., None] * stake_DNK, axis=-2).mean(axis=-1)


def most(differences_DN: ArrayLike) -> Floats:
    """The most that wealth ever was, ``[…]``; 1 before the first pair."""
    return wealth(differences_DN).max(axis=-1, initial=1.0)


def above(differences_N: ArrayLike, bound: float, error: float) -> bool:
    """Whether the effect is proven to be above a bound, but for a chance of ``error``."""
    return bool(most(np.asarray(differences_N, dtype=float) - bound) * error >= 1)


def below(differences_N: ArrayLike, bound: float, error: float) -> bool:
    """The same from the other side."""
    return above(-np.asarray(differences_N, dtype=float), -bound, error)


def low(differences_N: ArrayLike, error: float) -> float:
    """The effect is above this, but for a chance of ``error``; −∞ where the pairs are too few to say so."""
    data = np.asarray(differences_N, dtype=float)
    if len(data) == 0 or len(data) < fewest(error):
        return -np.inf
    spread = max(float(np.ptp(data)), 1e-9 * float(np.abs(data).max()), 1e-12)
    refuted, open_ = data.min() - FAR * spread, data.max() + spread
    if not above(data, refuted, error):
        return -np.inf
    for _ in range(80):
        middle = (refuted + open_) / 2
        refuted, open_ = (middle, open_) if above(data, middle, error) else (refuted, middle)
    return float(refuted)


def high(differences_N: ArrayLike, error: float) -> float:
    """The effect is below this, but for a chance of ``error``."""
    return -low(-np.asarray(differences_N, dtype=float), error)


def fewest(error: float) -> int:
    """The pairs without which nothing can be decided, however clear they are."""
    pairs = 1
    while wealth(np.ones(pairs))[-1] * error < 1:
        pairs += 1
    return pairs


def hopeless(differences_N: ArrayLike, bound: float, seeds: int, error: float) -> bool:
    """Whether pairs that are to come cannot prove the effect to lie on either side of a bound."""
    data = np.asarray(differences_N, dtype=float) - bound
    gain = 2.0 ** (seeds - len(data))  # a pair doubles wealth at most
    now = [wealth(side)[-1] if len(data) else 1.0 for side in (data, -data)]
    return max(*(most(side) for side in (data, -data)), *(each * gain for each in now)) * error < 1
