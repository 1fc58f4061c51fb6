"""What a mean may be, for all that was seen of bounded numbers: what was not seen is not ruled out."""

import torch
from torch import Tensor

from truing.ops.checks import check


def chance_above(point_E: Tensor, mean: float) -> float:
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
    check(point_E=(point_E, "float"))
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
