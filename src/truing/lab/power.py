"""What an experiment can see, before it is run: the same bets, on pairs drawn by chance."""

import math
from bisect import bisect_left
from functools import lru_cache

import numpy as np

from truing.lab.betting import fewest, most
from truing.rng import generator

DRAWS = 4000
"""Experiments that are drawn: a power of 0.8 is then known to 0.013."""

ENOUGH = 0.8
"""The power below which an experiment is refused."""

WITHIN, BETWEEN = 0.10, 0.13
"""Variance of a reward in [0, 1]: of an answer about its task's mean, and of those means over tasks.

Guesses for the time before anything was measured, at a mean reward of 0.65: together 0.65 × 0.35.
"""


def power(effect: float, deviation: float, seeds: int, error: float) -> float:
    """The share of experiments that prove an effect to be above 0.

    Args:
        effect: true mean of the paired differences.
        deviation: their standard deviation over seeds; they are drawn normal.
        seeds: pairs, at most: an experiment ends as soon as it knows.
        error: the chance of proving what is not so.
    """
    if deviation == 0:
        return float(effect > 0 and seeds >= fewest(error))
    return float((most(_noise(seeds) + effect / deviation) * error >= 1).mean())


@lru_cache
def _noise(seeds: int) -> np.ndarray:
    """The same draws whatever is asked, so that power rises with the effect."""
    return generator("lab", "power", seeds).standard_normal((DRAWS, seeds))


@lru_cache
def detectable_deviations(seeds: int, error: float, enough: float = ENOUGH) -> float:
    """The smallest effect that is seen with enough power, in deviations of a pair; ∞ with too few seeds."""
    if seeds < fewest(error):
        return math.inf
    unseen, seen = 0.0, 1.0
    while power(seen, 1.0, seeds, error) < enough:
        seen *= 2
    while seen - unseen > 1e-3 * seen:
        middle = (unseen + seen) / 2
        unseen, seen = (unseen, middle) if power(middle, 1.0, seeds, error) >= enough else (middle, seen)
    return seen


def detectable(deviation: float, seeds: int, error: float, enough: float = ENOUGH) -> float:
    """The minimum detectable effect."""
    ratio = detectable_deviations(seeds, error, enough)
    return ratio * deviation if math.isfinite(ratio) else math.inf


def seeds_needed(effect: float, deviation: float, error: float, most_seeds: int = 64) -> int | None:
    """The fewest pairs by which an effect is seen with enough power; None where that takes more than many."""
    tried = range(fewest(error), most_seeds + 1)
    if not tried or power(effect, deviation, most_seeds, error) < ENOUGH:
        return None
    return tried[bisect_left(tried, ENOUGH, key=lambda seeds: power(effect, deviation, seeds, error))]


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
