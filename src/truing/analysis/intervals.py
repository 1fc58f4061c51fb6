"""95 % intervals of a mean over tasks that hold for any number of tasks under their stated assumption."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy  # imports scipy.stats when it is used, which takes half a second
import torch

from truing.analysis.estimate import Estimate
from truing.ops.bounded_mean import gaffke_tail, gaffke_tail_saddlepoint
from truing.utils.rng import generator

CONFIDENCE = 0.95

MAX_EXACT_TASKS = 500
"""Tasks above which an approximation replaces the exact bound, whose time is quadratic."""

APPROXIMATION_ERROR = 0.01
"""The usual relative error of the approximation, as a share of the distance from the bound to the end."""

MAX_FLIPPED_TASKS = 2_000
"""Maximum number of differences for the sign-flip test; the mean of more is close to normal."""

REWARD_TOLERANCE = 1e-9
"""Rewards that differ by less are equal, because sums of weights round."""

Bounds = tuple[float, float]


def interval(values: Sequence[float], bounds: Bounds | None, samples: int | None = None) -> Estimate:
    """Return a mean over tasks with its interval: exact with bounds, Student's without."""
    return student_interval(values, samples) if bounds is None else bounded_interval(values, bounds, samples)


def bounded_interval(values: Sequence[float], bounds: Bounds, samples: int | None = None) -> Estimate:
    """Return the interval that assumes only bounds; the formula cites its source.

    It has a width also for equal values: after 200 tasks with reward 0, 1.8 % of others may have 1. For
    binary outcomes it is the Clopper–Pearson interval; for their paired differences it excludes 0 where the
    exact sign test, at 2.5 % a side, finds a difference.
    """
    tail = (1 - CONFIDENCE) / 2
    low = -_mean_exceeded(tuple(-each for each in (*values, bounds[0])), tail)
    high = _mean_exceeded((*values, bounds[1]), tail)
    return Estimate(float(np.mean(values)), low, high, len(values), samples)


@lru_cache(maxsize=64)  # the board asks again whenever a run changes
def _mean_exceeded(points: tuple[float, ...], share: float) -> float:
    """Return the mean that this share of draws exceeds, with random weights of the points."""
    point_E = torch.tensor(points, dtype=torch.float64)
    low, high = float(point_E.min()), float(point_E.max())
    if low == high:
        return low
    unit_E = (point_E - low) / (high - low)
    point_U, count_U = torch.unique(unit_E, return_counts=True)
    tilt = scipy.optimize.brentq(
        lambda t: gaffke_tail_saddlepoint(point_U, count_U, t)[1] - share, 1e-9, 1 - 1e-15, xtol=1e-15
    )
    root, _ = gaffke_tail_saddlepoint(point_U, count_U, float(tilt))
    if len(unit_E) <= MAX_EXACT_TASKS:

        def beyond(mean: float) -> float:
            return gaffke_tail(unit_E, mean) - share

        bracket = root - APPROXIMATION_ERROR * (1 - root), root + APPROXIMATION_ERROR * (1 - root)
        ends = bracket if beyond(bracket[0]) > 0 > beyond(bracket[1]) else (0.0, 1.0)
        root = float(scipy.optimize.brentq(beyond, *ends, xtol=1e-9))
    return low + (high - low) * root


def student_interval(values: Sequence[float], samples: int | None = None) -> Estimate:
    """Return Student's interval, which assumes normal values; NaN bounds if all are equal."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2 or max(values) - min(values) <= REWARD_TOLERANCE:
        return Estimate(mean, math.nan, math.nan, count, samples)
    half_width = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * float(scipy.stats.sem(values))
    return Estimate(mean, mean - half_width, mean + half_width, count, samples, supposes="normal rewards")


def is_significant(paired: Estimate, differences: Sequence[float]) -> bool:
    """Return whether two sides differ at 5 %: the interval of their paired differences excludes 0.

    For an interval with an assumption beyond bounds, a sign-flip test must agree: under equal sides each
    difference is as likely to have the other sign, so the mean must be farther from 0 than in 95 % of all
    choices of signs.
    """
    no_width = math.isnan(paired.low)  # all differences are equal: the interval is unknown
    excludes_zero = no_width or paired.low > 0 or paired.high < 0
    if not excludes_zero or not (no_width or paired.supposes) or len(differences) > MAX_FLIPPED_TASKS:
        return excludes_zero
    sign_flip_test = scipy.stats.permutation_test(
        (differences, np.zeros(len(differences))),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        batch=500,
        rng=generator("signs"),
    )
    return bool(sign_flip_test.pvalue <= 1 - CONFIDENCE)


def assumption_text(paired: Estimate) -> str:
    """Return the assumption of ``is_significant`` beyond bounds as text: symmetric differences."""
    return ", if differences are symmetric" if paired.supposes or math.isnan(paired.low) else ""
