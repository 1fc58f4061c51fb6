"""Confidence bounds of a mean of bounded numbers, by Gaffke's tail probability."""

import math

import torch
from torch import Tensor

from truing.ops.argument_checks import check_tensors


def gaffke_tail(point_E: Tensor, mean: float) -> float:
    """Return the probability that a randomly weighted mean of the points is above a number.

    P(Σ_e w_e x_e > m), w uniform over w_e ≥ 0, Σ_e w_e = 1. For a points at or below m and b above it,
    each side from the nearest to the farthest, with d their distances from m:
    P(a, b) = (d_b P(a − 1, b) + d_a P(a, b − 1)) ÷ (d_a + d_b), P(0, b) = 1, P(a, 0) = 0.

    If the points include the largest possible number, the m with probability 2.5 % is an upper bound, at
    97.5 %, of the mean of the distribution of the other points (Gaffke, Three test statistics for a
    nonparametric one-sided hypothesis on the mean of a nonnegative variable, Math. Methods Statist. 14,
    2005; https://arxiv.org/abs/1905.06208): that of Clopper and Pearson if all are 0 or 1. The recursion
    is that of the divided difference of (x − m)₊ⁿ at the points; it adds positive numbers only.

    Args:
        point_E: [E] float64, finite.
        mean: m.

    Returns:
        A probability.
    """
    check_tensors(point_E=(point_E, "float"))
    below_A = (mean - point_E[point_E <= mean]).sort().values
    above_Z = (point_E[point_E > mean] - mean).sort().values
    a_all, b_all = len(below_A), len(above_Z)
    tail_A = torch.zeros(a_all + 1, dtype=point_E.dtype)  # P(a, both − a), where both − a points are above
    tail_A[0] = 1
    for both in range(2, a_all + b_all + 1):
        first, last = max(1, both - b_all), min(a_all, both - 1)
        near_A, far_A = below_A[first - 1 : last], above_Z[both - last - 1 : both - first].flip(0)
        fewer_below_A, fewer_above_A = tail_A[first - 1 : last], tail_A[first : last + 1]
        mixed_A = (far_A * fewer_below_A + near_A * fewer_above_A) / (near_A + far_A)
        tail_A[first : last + 1] = mixed_A
    return float(tail_A[a_all])


def gaffke_tail_saddlepoint(point_U: Tensor, count_U: Tensor, tilt: float) -> tuple[float, float]:
    """Return a mean of many points and its tail probability, within 1 % (relative) of ``gaffke_tail``.

    By a saddlepoint approximation: of Σ_e E_e (x_e − m), E_e exponential, the cumulant generating function is
    K(s) = −Σ_e log(1 − s (x_e − m)). With v_e = 1 ÷ (1 − t x_e), m = Σ v x ÷ Σ v has its saddle point at
    s = t ÷ (1 − t m); P(Σ > 0) ≈ 1 − Φ(w) + φ(w) (1 ÷ u − 1 ÷ w), w = √(−2 K(s)), u = s √K″(s): Lugannani
    and Rice, Saddle point approximation for the distribution of the sum of independent random variables,
    Adv. Appl. Prob. 12, 1980.

    Args:
        point_U: [U] float64, from 0 to 1, not all equal.
        count_U: [U] int64, number of points of each value.
        tilt: t, between 0 and 1: a larger t gives a larger mean.

    Returns:
        The mean, and a probability.
    """
    check_tensors(point_U=(point_U, "float"), count_U=(count_U, "int64"))
    weight_U = count_U / (1 - tilt * point_U)
    mean = float((weight_U * point_U).sum() / weight_U.sum())
    saddle, centered_U = tilt / (1 - tilt * mean), point_U - mean
    exponent = float((count_U * torch.log1p(-saddle * centered_U)).sum())
    curvature = float((count_U * (centered_U / (1 - saddle * centered_U)).square()).sum())
    w, u = math.sqrt(2 * max(exponent, 0.0)), saddle * math.sqrt(curvature)
    tail = math.erfc(w / math.sqrt(2)) / 2
    if w > 0.1:  # near the mean the two terms are large and nearly equal
        tail += math.exp(-w * w / 2) / math.sqrt(2 * math.pi) * (1 / u - 1 / w)
    return mean, tail
