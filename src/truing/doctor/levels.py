"""Levels of a number over the steps of a stage: the best, the last, and the break."""

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

MIN_WINDOW = 5
"""Steps in a window."""


class Fall(NamedTuple):
    """The fall from the best earlier window to the last; windows are indices [start, end) of the values."""

    best: float
    now: float
    since: float  # mean of all values since the break
    window: int  # steps of either
    start: int  # of the best window
    broke: int  # first value of the lower level
    errors: float  # the fall in standard errors of the difference of two windows
    share: float  # of the best window's height above the floor
    steady: bool = False  # whether it falls from the first values on, without a break


def noise_std(values: Sequence[float]) -> float:
    """Return the deviation of single values about a slowly changing level, from differences of neighbours."""
    steps = [(after - before) ** 2 for before, after in pairwise(values)]
    return math.sqrt(math.fsum(steps) / len(steps) / 2) if steps else math.nan


def falls(values: Sequence[float]) -> list[Fall]:
    """Return falls by windows of five values, ten, and so on, the last a fifth of all; empty for too few.

    The floor is 0, or the smallest value if there are negative ones.
    """
    longest = max(MIN_WINDOW, len(values) // 5)
    windows, size = list[int](), MIN_WINDOW
    while size < longest:
        windows.append(size)
        size *= 2
    scatter = noise_std(values)
    return [_fall(values, window, scatter) for window in (*windows, longest) if len(values) >= 2 * window]


def _fall(values: Sequence[float], window: int, scatter: float) -> Fall:
    means = moving_means(values, window)
    now = means[-1]
    start = max(range(len(means) - window), key=lambda i: means[i])
    best, floor = means[start], min(0.0, *values)
    # with rare rewards the best window has more of them, and varies more than others
    single = max(scatter, statistics.stdev(values[start : start + window]))
    error = single * math.sqrt(2 / window)
    broke = start + change_point(values[start:])
    return Fall(
        best,
        now,
        statistics.fmean(values[broke:]),
        window,
        start,
        broke,
        (best - now) / error if error > 0 else 0.0,
        (best - now) / (best - floor) if best > floor else 0.0,
        start < window and _falls_at_once(values) and _is_line(values, broke),
    )


def _falls_at_once(values: Sequence[float]) -> bool:
    """Return whether the first quarter falls to the second by half of what a line would, or more."""
    part = len(values) // 4
    first, second, last = (
        statistics.fmean(x) for x in (values[:part], values[part : 2 * part], values[-part:])
    )
    return first - second >= (first - last) / 6


def _is_line(values: Sequence[float], place: int) -> bool:
    """Return whether a line leaves a smaller sum of squares than two levels do."""
    levels = [statistics.fmean(values[:place])] * place + [statistics.fmean(values[place:])] * len(values)
    slope, start = statistics.linear_regression(range(len(values)), values)
    line = [start + slope * i for i in range(len(values))]
    by_line, by_levels = (
        math.fsum((x - y) ** 2 for x, y in zip(values, each, strict=False)) for each in (line, levels)
    )
    return by_line < by_levels


def moving_means(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each run of ``window`` values, in order; sums are exact, in integers."""
    ratios = [value.as_integer_ratio() for value in values]
    unit = max((denominator for _, denominator in ratios), default=1)  # all are powers of 2
    sums = [0, *accumulate(numerator * (unit // denominator) for numerator, denominator in ratios)]
    return [(after - before) / (unit * window) for before, after in zip(sums, sums[window:], strict=False)]


def change_point(values: Sequence[float]) -> int:
    """Return the best break between two levels, by least squares, the second of at least a few values."""
    total, sums, best, place = math.fsum(values), 0.0, -math.inf, len(values) - MIN_WINDOW
    for i in range(1, len(values) - MIN_WINDOW + 1):
        sums += values[i - 1]
        # the sum of squares explained by two means
        explained = sums**2 / i + (total - sums) ** 2 / (len(values) - i)
        if explained > best:
            best, place = explained, i
    return place
