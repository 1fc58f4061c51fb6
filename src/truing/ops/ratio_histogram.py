"""How ratios are spread: counts between edges that are marks of the clip, and so show what it takes."""

import math

import torch
from torch import Tensor

from truing.ops.argument_checks import check_tensors

EDGES_PER_BAND, BANDS = 4, 5
"""Edges stand at quarters of the band's width in log r on its side of 1, out to so many widths."""

DEFAULT_BAND = 0.2
"""The band, on either side, that edges are made for where an objective has none."""


def ratio_edges(clip_low: float, clip_high: float, max_ratio: float) -> tuple[list[float], list[float]]:
    """Edges below 1 and above it, each ascending.

    e_j = (1 − low)^(j/4) and (1 + high)^(j/4), j = 1 … 20: quarters, in log r, of the band of the PPO clip
    (https://arxiv.org/abs/1707.06347).

    The ends of the clip's band are edges exactly; so is a cap. None is 1 itself, about which rounding
    spreads on-policy ratios: all of them lie in the bin between the two lists.

    Args:
        clip_low: width of the band below 1; from 1 on, or infinite, there is no such clip.
        clip_high: width of the band above 1; infinite is no such clip.
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
    """So many quarters of a band in log r; short in a file, but for the end of the band, which is exact."""
    return end if quarters == EDGES_PER_BAND else round(end ** (quarters / EDGES_PER_BAND), 7)


def ratio_counts(ratio_N: Tensor, below: list[float], above: list[float]) -> Tensor:
    """How many ratios lie between each two edges.

    c_b = Σ_n [e_b ≤ r_n < e_b+1] below 1, and Σ_n [e_b < r_n ≤ e_b+1] above it.

    A ratio that is an edge is counted on the side of 1, as the clip keeps what is at the end of its band.

    Args:
        ratio_N: [N] float64, none of them NaN.
        below: edges under 1, ascending.
        above: edges over 1, ascending.

    Returns:
        [E + 1] int64 of E edges: first what is under all of them, last what is over all of them.
    """
    check_tensors(ratio_N=(ratio_N, "float"))
    under = torch.tensor(below, dtype=ratio_N.dtype)
    over = torch.tensor(above, dtype=ratio_N.dtype)
    bin_N = torch.bucketize(ratio_N, under, right=True) + torch.bucketize(ratio_N, over)
    return torch.bincount(bin_N, minlength=len(below) + len(above) + 1)
