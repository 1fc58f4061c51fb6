"""What a mean may be, for all that was seen of bounded numbers: what was not seen is not ruled out."""

import math

import torch
from torch import Tensor

from truing.ops.argument_checks import check_tensors


def gaffke_tail(point_E: Tensor, mean: float) -> float:
    """How often a mean of the points is above a number, when each counts for a share drawn at random.

    P(Σ_e w_e x_e > m), with w uniform over w_e ≥ 0, Σ_e w_e = 1. For a points at or below m and b above it,
    each side from the nearest to the farthest, with d their distances from m:
    P(a, b) = (d_b P(a − 1, b) + d_a P(a, b − 1)) ÷ (d_a + d_b), P(0, b) = 1, P(a, 0) = 0.

    With the most that a number can be among the points, the mean that is passed in only 2.5 % of draws is an
    upper bound of the mean of what the others were drawn from, at 97.5 % (Gaffke, Three test statistics for a
    nonparametric one-sided hypothesis on the mean of a nonnegative variable, Math. Methods Statist. 14,
    2005; https://arxiv.org/abs/1905.06208): that of Clopper and Pearson where all are 0 or 1. The recursion
    is that of the divided difference of (x − m)₊ⁿ at the points; it adds nothing but positive numbers.

    Args:
        point_E: [E] float64, finite.
        mean: what a draw is compared with.

    Returns:
        A probability.
    """
    check_tensors(point_E=(point_E, "float"))
    below_A = (mean - point_E[point_E <= mean]).sort().values
    above_Z = (point_E[point_E > mean] - mean).sort().values
    a_all, b_all = len(below_A), len(above_Z)
    chance_A = torch.zeros(a_all + 1, dtype=point_E.dtype)  # P(a, both − a), where there are so many above
    chance_A[0] = 1
    for both in range(2, a_all + b_all + 1):
        first, last = max(1, both - b_all), min(a_all, both - 1)
        near_A, far_A = below_A[first - 1 : last], above_Z[both - last - 1 : both - first].flip(0)
        fewer_below_A, fewer_above_A = chance_A[first - 1 : last], chance_A[first : last + 1]
        mixed_A = (far_A * fewer_below_A + near_A * fewer_above_A) / (near_A + far_A)
        chance_A[first : last + 1] = mixed_A
    return float(chance_A[a_all])


def gaffke_tail_saddlepoint(point_U: Tensor, count_U: Tensor, tilt: float) -> tuple[float, float]:
    """A mean of many points, and how often it is passed, as ``chance_above`` says it to 1 % of the chance.

    By a saddle point: of Σ_e E_e (x_e − m), E_e exponential, the cumulant generating function is
    K(s) = −Σ_e log(1 − s (x_e − m)). With v_e = 1 ÷ (1 − t x_e), m = Σ v x ÷ Σ v has its saddle point at
    s = t ÷ (1 − t m); P(Σ > 0) ≈ 1 − Φ(w) + φ(w) (1 ÷ u − 1 ÷ w), w = √(−2 K(s)), u = s √K″(s): Lugannani
    and Rice, Saddle point approximation for the distribution of the sum of independent random variables,
    Adv. Appl. Prob. 12, 1980.

    Args:
        point_U: [U] float64, from 0 to 1, not all equal.
        count_U: [U] how often each is there.
        tilt: t, between 0 and 1: the larger, the farther is the mean above that of the points.

    Returns:
        The mean, and a probability.
    """
    check_tensors(point_U=(point_U, "float"), count_U=(count_U, "int64"))
    weight_U = count_U / (1 - tilt * point_U)
    mean = float((weight_U * point_U).sum() / weight_U.sum())
    saddle, apart_U = tilt / (1 - tilt * mean), point_U - mean
    half = float((count_U * torch.log1p(-saddle * apart_U)).sum())
    curved = float((count_U * (apart_U / (1 - saddle * apart_U)).square()).sum())
    w, u = math.sqrt(2 * max(half, 0.0)), saddle * math.sqrt(curved)
    chance = math.erfc(w / math.sqrt(2)) / 2
    if w > 0.1:  # nearer to the mean the two that follow are large, and nearly equal
        chance += math.exp(-w * w / 2) / math.sqrt(2 * math.pi) * (1 / u - 1 / w)
    return mean, chance
