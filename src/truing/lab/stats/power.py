"""What an experiment can see, before it is run: the same bets, on pairs drawn by chance."""

import math
from bisect import bisect_left
from functools import lru_cache

import numpy as np

from truing.lab.stats.e_process import max_wealth, min_pairs
from truing.utils.rng import generator

DRAWS = 4000
"""Experiments that are drawn: a power of 0.8 is then known to 0.013."""

MIN_POWER = 0.8
"""The power below which an experiment is refused."""

WITHIN, BETWEEN = 0.10, 0.13
"""Variance of a reward in [0, 1]: of an answer about its task's mean, and of those means over tasks.

Guesses for the time before anything was measured, at a mean reward of 0.65: together 0.65 × 0.35.
"""


def power(
    effect: float,
    deviation: float,
    seeds: int,
    error: float,
    *,
    bound: float = 0.0,
    within: float | None = None,
) -> float:
    """The share of experiments that prove an effect to be above a bound, by the bets that judge it.

    Args:
        effect: true mean of the paired differences.
        deviation: their standard deviation over seeds; they are drawn normal, none farther from 0 than
            ``within``.
        seeds: pairs, at most: an experiment ends as soon as it knows.
        error: the chance of proving what is not so.
        bound: what is to be passed.
        within: how far from 0 a pair can lie; None where nobody knows, and bets are on signs.
    """
    if math.isnan(deviation):
        return math.nan
    drawn = effect + deviation * _noise(seeds)
    if within is not None:
        drawn = np.clip(drawn, -within, within)
    return float((max_wealth(drawn, bound, within) * error >= 1).mean())


@lru_cache
def _noise(seeds: int) -> np.ndarray:
    """The same draws whatever is asked, so that power rises with the effect."""
    return generator("lab", "power", seeds).standard_normal((DRAWS, seeds))


@lru_cache
def min_detectable_excess(
    deviation: float,
    seeds: int,
    error: float,
    enough: float = MIN_POWER,
    *,
    bound: float = 0.0,
    within: float | None = None,
) -> float:
    """The minimum detectable effect beyond a bound: the smallest that is seen with enough power.

    ∞ where none is, and NaN where nobody knows the noise.
    """
    if math.isnan(deviation):
        return math.nan
    if seeds < min_pairs(error, within):
        return math.inf

    def seen(beyond: float) -> bool:
        return power(bound + beyond, deviation, seeds, error, bound=bound, within=within) >= enough

    if within is None:
        scale = deviation
        while scale and not seen(scale):
            scale *= 2
    else:
        scale = within - bound
        if scale <= 0 or not seen(scale):
            return math.inf
    low, high = 0.0, scale
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def seeds_needed(
    effect: float,
    deviation: float,
    error: float,
    max_seeds: int = 200,
    *,
    bound: float = 0.0,
    within: float | None = None,
) -> int | None:
    """The fewest pairs by which an effect is seen with enough power; None where that takes more than many."""

    def seen(seeds: int) -> float:
        return power(effect, deviation, seeds, error, bound=bound, within=within)

    tried = range(min_pairs(error, within), max_seeds + 1)
    if not tried or not seen(max_seeds) >= MIN_POWER:
        return None
    return tried[bisect_left(tried, MIN_POWER, key=seen)]


def within_needed(
    effect: float, deviation: float, seeds: int, error: float, *, bound: float, within: float
) -> float:
    """How near to 0 all pairs must lie for an effect to be seen with enough power; NaN where none is."""
    least, most_ = abs(bound) + 1e-9, within
    for _ in range(30):
        middle = (least + most_) / 2
        seen = power(effect, deviation, seeds, error, bound=bound, within=middle) >= MIN_POWER
        least, most_ = (middle, most_) if seen else (least, middle)
    beyond_noise = least >= effect + 2 * deviation  # else pairs would be expected to lie beyond it
    return least if beyond_noise else math.nan


def evaluation_noise(tasks: int, samples: int) -> float:
    """Deviation of a paired difference by the evaluation alone: the same tasks, answered by two policies."""
    return math.sqrt(2 * WITHIN / (tasks * samples))


def training_noise(prompts: int, group: int, steps: int) -> float:
    """Deviation of a paired difference of mean training rewards, by which prompts and answers were drawn.

    Arms of a seed meet the same prompts, so that tasks differ in nothing but in what they make of a policy.
    """
    return math.sqrt(2 * WITHIN / (prompts * group * steps))


def unpaired_noise(prompts: int, group: int, steps: int) -> float:
    """The same where each run draws prompts of its own, as runs without shared seeds do."""
    return math.sqrt(2 * (BETWEEN + WITHIN / group) / (prompts * steps))


def information(probability: float, seen: float, error: float) -> float:
    """Bits that a verdict is expected to say of a claim.

    The mutual information of the claim, true with ``probability``, and of a test that says so with chance
    ``seen`` where it is true, and ``error`` where it is not.
    """
    says = probability * seen + (1 - probability) * error
    return _bits(says) - probability * _bits(seen) - (1 - probability) * _bits(error)


def _bits(chance: float) -> float:
    """Entropy of a coin."""
    return -sum(p * math.log2(p) for p in (chance, 1 - chance) if p > 0)
