"""Reduces curves to the resolution of a screen: a point per step, or per bucket with mean and range."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = 600
"""Maximum points of a curve, about the pixels of a chart."""


def curve(
    values_N: NDArray[np.float64], start: int = 0, end: int | None = None, log: bool = False
) -> dict[str, Any]:
    """Return a range of a metric's history: `x` counts steps of the run from 1.

    Up to ``POINTS`` steps are points. More are grouped in buckets of equal width: `y` is the mean, `low`
    and `high` are minimum and maximum, and `low_at` and `high_at` their steps, so that no spike is lost.
    Missing values are left out, as are values without a position: `infinite` counts infinite values,
    `not_above_0` values ≤ 0 on a log axis. `last` is the last value, drawn or not.
    """
    end = len(values_N) if end is None else min(end, len(values_N))
    part_N = values_N[max(0, start) : end]
    drawable_N = np.isfinite(part_N) & ((part_N > 0) | (not log))
    infinite, known = int(np.isinf(part_N).sum()), part_N[~np.isnan(part_N)]
    counts = {
        "infinite": infinite,
        "not_above_0": len(known) - infinite - int(drawable_N.sum()),
        "last": float(known[-1]) if len(known) else None,
    }
    at_N = np.flatnonzero(drawable_N) + max(0, start)
    if len(at_N) <= POINTS:
        return {"x": (at_N + 1).tolist(), "y": values_N[at_N].tolist(), **counts}
    return {**_buckets(values_N, at_N), **counts}


def _buckets(values_N: NDArray[np.float64], at_N: NDArray[np.int64]) -> Mapping[str, Any]:
    width = math.ceil((at_N[-1] - at_N[0] + 1) / POINTS)
    bucket_N = (at_N - at_N[0]) // width
    starts = np.flatnonzero(np.diff(bucket_N, prepend=-1))
    known_N = values_N[at_N]
    count = np.diff(starts, append=len(at_N))
    low, high = np.minimum.reduceat(known_N, starts), np.maximum.reduceat(known_N, starts)
    owner_N = np.repeat(np.arange(len(starts)), count)
    return {
        "x": (np.add.reduceat(at_N + 1, starts) / count).tolist(),
        "y": (np.add.reduceat(known_N, starts) / count).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "low_at": _first(at_N, owner_N, known_N == low[owner_N]),
        "high_at": _first(at_N, owner_N, known_N == high[owner_N]),
        "width": width,
    }


def _first(at_N: NDArray[np.int64], owner_N: NDArray[np.int64], matches_N: NDArray[np.bool_]) -> list[int]:
    """Return the first matching step (from 1) of each bucket."""
    indices = np.flatnonzero(matches_N)
    _, first = np.unique(owner_N[indices], return_index=True)
    return (at_N[indices[first]] + 1).tolist()
