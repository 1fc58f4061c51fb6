"""Power of an experiment before it runs: the same bets, on simulated pairs."""

import math
from bisect import bisect_left
from functools import lru_cache

import numpy as np

from truing.lab.stats.e_process import max_wealth, min_pairs
from truing.utils.rng import generator

DRAWS = 4000
"""Simulated experiments: a power of 0.8 is then accurate to 0.013."""

MIN_POWER = 0.8
"""The power below which an experiment is refused."""

TASK_VARIANCE = 0.10
"""Variance of a reward in [0, 1] among the answers to a task, at a mean reward of 0.65.

Assumed before the first measurement.
"""


@lru_cache(maxsize=4096)
def power(
    effect: float,
    deviation: float,
    seeds: int,
    error: float,
    *,
    bound: float = 0.0,
    within: float | None = None,
) -> float:
    """Return the share of simulated experiments that prove an effect to be above a bound.

    Args:
        effect: true mean of the paired differences.
        deviation: their standard deviation over seeds; the simulation is normal, clipped at
            ±``within``.
        seeds: pairs at most: an experiment ends as soon as it decides.
        error: the probability of a false proof.
        bound: the effect must be above it.
        within: bound on the size of a difference; None if unknown: the bets are then on signs.
    """
    if math.isnan(deviation):
        return math.nan
    differences = effect + deviation * _noise(seeds)
    if within is not None:
        differences = np.clip(differences, -within, within)
    return float((max_wealth(differences, bound, within) * error >= 1).mean())


@lru_cache
def _noise(seeds: int) -> np.ndarray:
    """Return the same normal draws for every effect, so that power rises with the effect."""
    return generator("lab", "power", seeds).standard_normal((DRAWS, seeds))


@lru_cache
def min_detectable_excess(
    deviation: float,
    seeds: int,
    error: float,
    min_power: float = MIN_POWER,
    *,
    bound: float = 0.0,
    within: float | None = None,
) -> float:
    """Return the minimum detectable effect beyond a bound: the smallest with enough power.

    ∞ if there is none, NaN if the noise is unknown.
    """
    if math.isnan(deviation):
        return math.nan
    if seeds < min_pairs(error, within):
        return math.inf

    def detected(beyond: float) -> bool:
        return power(bound + beyond, deviation, seeds, error, bound=bound, within=within) >= min_power

    if within is None:
        scale = deviation
        while scale and not detected(scale):
            scale *= 2
    else:
        scale = within - bound
        if scale <= 0 or not detected(scale):
            return math.inf
    low, high = 0.0, scale
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if detected(middle) else (middle, high)
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
    """Return the fewest pairs that detect an effect with enough power; None if ``max_seeds`` are too few."""

    def power_of(seeds: int) -> float:
        return power(effect, deviation, seeds, error, bound=bound, within=within)

    candidates = range(min_pairs(error, within), max_seeds + 1)
    if not candidates or not power_of(max_seeds) >= MIN_POWER:
        return None
    return candidates[bisect_left(candidates, MIN_POWER, key=power_of)]


def within_needed(
    effect: float, deviation: float, seeds: int, error: float, *, bound: float, within: float
) -> float:
    """Return the bound on differences that detects an effect with enough power; NaN if there is none."""
    low, high = abs(bound) + 1e-9, within
    for _ in range(30):
        middle = (low + high) / 2
        detected = power(effect, deviation, seeds, error, bound=bound, within=middle) >= MIN_POWER
        low, high = (middle, high) if detected else (low, middle)
    beyond_noise = low >= effect + 2 * deviation  # else some pairs are expected beyond it
    return low if beyond_noise else math.nan


def evaluation_noise(tasks: int, samples: int) -> float:
    """Return the deviation of a paired difference from the evaluation alone: two policies, the same tasks."""
    return math.sqrt(2 * TASK_VARIANCE / (tasks * samples))


def training_noise(prompts: int, group: int, steps: int) -> float:
    """Return the deviation of a paired difference of mean training rewards, from sampling alone.

    Arms of a seed train on the same prompts, so the variance between tasks cancels.
    """
    return math.sqrt(2 * TASK_VARIANCE / (prompts * group * steps))
