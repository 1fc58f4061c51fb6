"""95 % intervals of a mean over tasks: what each supposes, and that it holds then for any number of tasks."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy import stats
from scipy.optimize import brentq
from torch import Tensor

from truing.analysis.estimate import Estimate
from truing.ops.bounded_mean import gaffke_tail, gaffke_tail_saddlepoint
from truing.utils.rng import generator

CONFIDENCE = 0.95

MAX_EXACT_TASKS = 500
"""Tasks beyond which the exact bound, whose time grows with their square, gives way to its approximation."""

APPROXIMATION_ERROR = 0.01
"""How near the approximation is to the exact bound, in most cases, of what is between it and the end."""

MAX_FLIPPED_TASKS = 2_000
"""Differences up to which signs are flipped; the mean of more is as good as normal."""

REWARD_TOLERANCE = 1e-9
"""Rewards that differ by less are the same: sums of weights round."""

Bounds = tuple[float, float]


def interval(values: Sequence[float], bounds: Bounds | None, samples: int | None = None) -> Estimate:
    """A mean over tasks with its interval: exact within bounds, and without them Student's."""
    return student_interval(values, samples) if bounds is None else bounded_interval(values, bounds, samples)


def bounded_interval(values: Sequence[float], bounds: Bounds, samples: int | None = None) -> Estimate:
    """The interval that supposes nothing but bounds; the source is at the formula.

    It has a width also where all values are equal: after 200 tasks that earned 0, 1.8 % of others may earn
    1. Of outcomes it is that of Clopper and Pearson; of paired differences of outcomes it leaves 0 out where
    the exact sign test, at 2.5 % a side, finds a difference.
    """
    value_N, tail = torch.tensor(values, dtype=torch.float64), (1 - CONFIDENCE) / 2
    least, most = (value_N.new_tensor([end]) for end in bounds)
    low = -_mean_passed(torch.cat([-value_N, -least]), tail)
    high = _mean_passed(torch.cat([value_N, most]), tail)
    return Estimate(float(np.mean(values)), low, high, len(values), samples)


def _mean_passed(point_E: Tensor, share: float) -> float:
    """The mean that this share of draws passes, each point counting for a share drawn at random."""
    least, most = float(point_E.min()), float(point_E.max())
    if least == most:
        return least
    unit_E = (point_E - least) / (most - least)
    point_U, count_U = torch.unique(unit_E, return_counts=True)
    tilt = brentq(
        lambda t: gaffke_tail_saddlepoint(point_U, count_U, t)[1] - share, 1e-9, 1 - 1e-15, xtol=1e-15
    )
    found, _ = gaffke_tail_saddlepoint(point_U, count_U, float(tilt))
    if len(unit_E) <= MAX_EXACT_TASKS:

        def beyond(mean: float) -> float:
            return gaffke_tail(unit_E, mean) - share

        near = found - APPROXIMATION_ERROR * (1 - found), found + APPROXIMATION_ERROR * (1 - found)
        ends = near if beyond(near[0]) > 0 > beyond(near[1]) else (0.0, 1.0)
        found = float(brentq(beyond, *ends, xtol=1e-9))
    return least + (most - least) * found


def student_interval(values: Sequence[float], samples: int | None = None) -> Estimate:
    """Student's interval, which supposes that values are normal; none where all are equal."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2 or max(values) - min(values) <= REWARD_TOLERANCE:
        return Estimate(mean, math.nan, math.nan, count, samples)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * float(stats.sem(values))
    return Estimate(mean, mean - half, mean + half, count, samples, supposes="normal")


def is_significant(paired: Estimate, differences: Sequence[float]) -> bool:
    """Whether two sides differ, but for 5 % of cases: the interval of their paired differences leaves 0 out.

    Of an interval that supposes more than bounds that is not enough. If the sides do equally well nobody
    could tell which is which, and each difference is as likely to have the other sign: then the mean is
    to be farther from 0 than in 95 % of all choices of signs, too.
    """
    bare = math.isnan(paired.low)  # all differ by the same, and nobody knows what others may
    beyond = bare or paired.low > 0 or paired.high < 0
    if not beyond or not (bare or paired.supposes) or len(differences) > MAX_FLIPPED_TASKS:
        return beyond
    flipped = stats.permutation_test(
        (differences, np.zeros(len(differences))),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        batch=500,
        rng=generator("signs"),
    )
    return bool(flipped.pvalue <= 1 - CONFIDENCE)


def supposed(paired: Estimate) -> str:
    """What ``differs`` supposes beyond bounds: a mean of 0 alone does not make signs alike."""
    return ", if differences are symmetric" if paired.supposes or math.isnan(paired.low) else ""
