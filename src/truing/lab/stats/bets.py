"""Wealth of bets on paired differences, from 1: two tests, each with the null under which it is fair.

``mean_bet_wealth`` tests a mean. No pair's difference d is below −W, and the null is that the mean is at
most m. A bet of the share λ of the wealth on a pair multiplies the wealth by 1 + λ (d − m) ÷ (W + m). Under
the null this factor is at least 0 and its mean at most 1, for every distribution. Source: Waudby-Smith &
Ramdas, Estimating means of bounded random variables by betting (2024), https://arxiv.org/abs/2010.09686,
section 4.

``sign_bet_wealth`` tests differences that are symmetric about 0, of any size. If an arm has no effect, the
two runs of a pair are exchangeable, so both signs of a difference are equally likely. A mean of 0 alone does
not make the test fair. Source: Ramdas et al., Admissible anytime-valid sequential inference must rely on
nonnegative martingales (2020), https://arxiv.org/abs/2009.03167, on tests of symmetry.

In both, the probability that wealth *ever* reaches 1/a is at most a (Ville's inequality).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LAMBDAS = (1.0, 0.5)
"""λ; the wealth is split equally: 1 suits pairs with little scatter, 0.5 pairs with large losses."""

KAPPAS = (1.0, 2.0, 4.0)
"""κ; the wealth is split equally: small stakes suit small effects, large ones equal signs."""


def mean_bet_wealth(differences_DN: ArrayLike, bound: float, within: float) -> Floats:
    """Return the wealth after each pair, ``[…, N]``, of bets on a mean above a bound.

    Args:
        differences_DN: paired differences, arm − baseline, in the order of pairs.
        bound: m. A bound of −W or less is certainly exceeded: wealth is ∞.
        within: W. A pair below −W violates the assumption: wealth is 0 at all pairs.
    """
    differences_DN = np.asarray(differences_DN, dtype=float)
    valid_D1 = np.all(differences_DN >= -within, axis=-1, keepdims=True)
    if bound <= -within:
        return np.where(valid_D1, np.inf, 0.0) * np.ones_like(differences_DN)
    payoff_DN = np.maximum((differences_DN - bound) / (within + bound), -1.0)
    wealth_DNK = np.cumprod(1 + payoff_DN[..., None] * np.asarray(LAMBDAS), axis=-2)
    return np.where(valid_D1, wealth_DNK.mean(axis=-1), 0.0)


def sign_bet_wealth(differences_DN: ArrayLike) -> Floats:
    """Return the wealth after each pair, ``[…, N]``, of bets on positive signs.

    The stake on pair i is tanh(κ |d_i| ÷ mean of |d_1| … |d_i|): it depends on sizes only, never on the sign.
    """
    differences_DN = np.asarray(differences_DN, dtype=float)
    size_DN = np.abs(differences_DN)
    mean_DN = np.cumsum(size_DN, axis=-1) / np.arange(1, differences_DN.shape[-1] + 1)
    share_DN = np.divide(size_DN, mean_DN, out=np.zeros_like(size_DN), where=mean_DN > 0)
    stake_DNK = np.tanh(share_DN[..., None] * np.asarray(KAPPAS))
    return np.cumprod(1 + np.sign(differences_DN)[..., None] * stake_DNK, axis=-2).mean(axis=-1)
