"""What bets on paired differences make of 1: formulas of two tests, each with the null that it is fair under.

``of_mean`` is of a mean. No pair's difference is below −W. If the mean gain is at most m, then whoever
stakes a share λ of what he has on each pair, and is paid λ (d − m) ÷ (W + m), loses nothing but what he
staked, and wins nothing on average: 1 + λ (d − m) ÷ (W + m) is at least 0 and its mean at most 1, whatever
the distribution. Source: Waudby-Smith & Ramdas, Estimating means of bounded random variables by betting
(2024), https://arxiv.org/abs/2010.09686, section 4.

``of_signs`` is of symmetric differences, of any size. If an arm does nothing nobody could tell which run of a
pair is the arm's, so each difference is as likely to have the other sign. A mean of 0 alone does not make
it fair. Source: Ramdas et al., Admissible anytime-valid sequential inference must rely on nonnegative
martingales (2020), https://arxiv.org/abs/2009.03167, on tests of symmetry.

Either way the chance that wealth is *ever* 1/a is at most a (Ville's inequality).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LAMBDAS = (1.0, 0.5)
"""λ; wealth is shared out equally: all of it where pairs hardly scatter, half where some lose much."""

KAPPAS = (1.0, 2.0, 4.0)
"""κ; small stakes win on small effects, large ones when all signs agree."""


def mean_bet_wealth(differences_DN: ArrayLike, bound: float, within: float) -> Floats:
    """What is left after each pair, ``[…, N]``, by bets on a mean above a bound.

    Args:
        differences_DN: paired differences, arm − baseline, in the order of pairs.
        bound: m. What is at −W or below is passed for sure: wealth is then ∞.
        within: W. A pair that lies below −W leaves 0, at all pairs: what the bets suppose is not so.
    """
    differences_DN = np.asarray(differences_DN, dtype=float)
    sound_D1 = np.all(differences_DN >= -within, axis=-1, keepdims=True)
    if bound <= -within:
        return np.where(sound_D1, np.inf, 0.0) * np.ones_like(differences_DN)
    paid_DN = np.maximum((differences_DN - bound) / (within + bound), -1.0)
    kept_DNK = np.cumprod(1 + paid_DN[..., None] * np.asarray(LAMBDAS), axis=-2)
    return np.where(sound_D1, kept_DNK.mean(axis=-1), 0.0)


def sign_bet_wealth(differences_DN: ArrayLike) -> Floats:
    """What is left after each pair, ``[…, N]``, by bets on positive signs.

    The stake on pair i is tanh(κ |d_i| ÷ mean of |d_1| … |d_i|): known from sizes before the sign is seen.
    """
    differences_DN = np.asarray(differences_DN, dtype=float)
    size_DN = np.abs(differences_DN)
    mean_DN = np.cumsum(size_DN, axis=-1) / np.arange(1, differences_DN.shape[-1] + 1)
    share_DN = np.divide(size_DN, mean_DN, out=np.zeros_like(size_DN), where=mean_DN > 0)
    stake_DNK = np.tanh(share_DN[..., None] * np.asarray(KAPPAS))
    return np.cumprod(1 + np.sign(differences_DN)[..., None] * stake_DNK, axis=-2).mean(axis=-1)
