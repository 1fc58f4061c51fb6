"""A histogram of ratios whose edges include the limits of the clip."""

import math

import torch
from torch import Tensor

from truing.ops.argument_checks import check_tensors

EDGES_PER_BAND, BANDS = 4, 5
"""Edges are at quarters of the clip range's width in log r on each side of 1, out to 5 widths."""

DEFAULT_BAND = 0.2
"""The clip range, on either side, for the edges of an objective without one."""


def ratio_edges(clip_low: float, clip_high: float, max_ratio: float) -> tuple[list[float], list[float]]:
    """Return the edges below 1 and above 1, each ascending.

    e_j = (1 − low)^(j/4) and (1 + high)^(j/4), j = 1 … 20: quarters, in log r, of the range of the PPO clip
    (https://arxiv.org/abs/1707.06347).

    The limits of the clip range are exact edges; so is a cap. 1 itself is not an edge, since rounding
    spreads on-policy ratios around it: all of them are in the bin between the two lists.

    Args:
        clip_low: width of the clip range below 1; at least 1, or infinite, is not a clip.
        clip_high: width of the clip range above 1; infinite is not a clip.
        max_ratio: the cap on a token's weight; infinite is none.

    Returns:
        The edges below 1, and those above.
    """
    low = 1 - (clip_low if clip_low < 1 else DEFAULT_BAND)
    high = 1 + (clip_high if math.isfinite(clip_high) else DEFAULT_BAND)
    powers = range(1, EDGES_PER_BAND * BANDS + 1)
    below = {_edge(low, j) for j in powers}
    above = {_edge(high, j) for j in powers}
    if math.isfinite(max_ratio):
        (above if max_ratio > 1 else below).add(max_ratio)
    return sorted(below - {1.0}), sorted(above - {1.0})


def _edge(end: float, quarters: int) -> float:
    """Return an edge, ``quarters`` of a range in log r from 1; rounded, except at the limit of the range."""
    return end if quarters == EDGES_PER_BAND else round(end ** (quarters / EDGES_PER_BAND), 7)


def ratio_counts(ratio_N: Tensor, below: list[float], above: list[float]) -> Tensor:
    """Return the number of ratios between each two edges.

    c_b = Σ_n [e_b ≤ r_n < e_b+1] below 1, and Σ_n [e_b < r_n ≤ e_b+1] above it.

    A ratio equal to an edge is counted on the side of 1, as the clip keeps a ratio at its limit.

    Args:
        ratio_N: [N] float64, none of them NaN.
        below: edges under 1, ascending.
        above: edges over 1, ascending.

    Returns:
        [E + 1] int64 for E edges; the first counts ratios below all edges, the last those above all.
    """
    check_tensors(ratio_N=(ratio_N, "float"))
    low_edges = torch.tensor(below, dtype=ratio_N.dtype)
    high_edges = torch.tensor(above, dtype=ratio_N.dtype)
    bin_N = torch.bucketize(ratio_N, low_edges, right=True) + torch.bucketize(ratio_N, high_edges)
    return torch.bincount(bin_N, minlength=len(below) + len(above) + 1)
