"""The pattern of the difference between two log-probabilities of the same tokens: it shows the cause."""

from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step

FEWEST = 32
"""Tokens; a pattern of fewer is chance."""


class Pattern(NamedTuple):
    """Where the trainer's log-probabilities differ from the sampler's, and in which direction."""

    tokens: int
    lower: float  # share of differing tokens with the trainer's number lower
    slope: float  # trainer's ≈ slope · sampler's
    explained: float  # share of the squared difference that this slope explains
    shift: int  # tokens, the best fit of the two
    left: float  # share of the mean difference left by the best shift
    worst_rows: int  # samples with nine tenths of the difference
    rows: int

    @property
    def text(self) -> str:
        """The pattern as the end of a sentence; "" without one."""
        if self.tokens < FEWEST:
            return ""
        if self.shift and self.left < 0.2:
            return f"; they fit {abs(self.shift)} tokens {'later' if self.shift > 0 else 'earlier'}: a shift"
        if self.worst_rows <= 0.2 * self.rows:
            return (
                f"; {self.worst_rows} of {self.rows} samples have nearly all of it: a fault of samples,"
                " not of tokens"
            )
        if self.explained > 0.8 and abs(self.slope - 1) > 0.02:
            return f"; one is about {self.slope:.2f} times the other: two temperatures, or ids left out"
        if self.lower > 0.95:
            return (
                "; the trainer's is lower nearly everywhere: it counts more ids than the sampler, or lacks"
                " a part of the context"
            )
        if self.lower < 0.05:
            return "; the trainer's is higher nearly everywhere: it counts fewer ids than the sampler"
        return ""


NO_PATTERN = Pattern(0, 0.5, 1.0, 0.0, 0, 1.0, 0, 0)


def pattern_of(step: Step, sampler_N: Tensor, new_N: Tensor, compared_N: Tensor) -> Pattern:
    """Return the pattern of the trainer's ``new_N`` minus ``sampler_N`` at the tokens ``compared_N``: [N]."""
    difference_N = torch.where(compared_N, new_N - sampler_N, torch.nan)
    apart_n = difference_N[~difference_N.isnan()]
    if not len(apart_n):
        return NO_PATTERN
    return Pattern(
        len(apart_n),
        float((apart_n < 0).sum() / (apart_n != 0).sum().clamp(min=1)),
        *_slope(sampler_N[~difference_N.isnan()], apart_n),
        *_shift(step, sampler_N, new_N, difference_N),
        *_rows(step, difference_N),
    )


def _slope(sampler_n: Tensor, apart_n: Tensor) -> tuple[float, float]:
    """Return the slope of trainer's by sampler's through 0, and the explained share of the difference."""
    square = float(sampler_n.square().sum())
    slope = 1 + float((sampler_n * apart_n).sum()) / square if square else 1.0
    left, whole = (apart_n - (slope - 1) * sampler_n).square().sum(), apart_n.square().sum()
    return slope, 1 - float(left / whole) if whole else 0.0


def _shift(step: Step, sampler_N: Tensor, new_N: Tensor, difference_N: Tensor) -> tuple[int, float]:
    """Return the shift in tokens of the best fit, and the share of the mean difference left there."""
    means = {0: float(difference_N.abs().nanmean())}
    for shift in (-2, -1, 1, 2):
        moved_N = torch.roll(new_N, -shift) - sampler_N
        same_row_N = torch.roll(step.sample_of_token, -shift) == step.sample_of_token
        moved_n = moved_N[same_row_N & ~difference_N.isnan() & ~moved_N.isnan()]
        if len(moved_n) >= FEWEST:
            means[shift] = float(moved_n.abs().mean())
    best = min(means, key=lambda shift: means[shift])
    return best, means[best] / means[0] if means[0] else 1.0


def _rows(step: Step, difference_N: Tensor) -> tuple[int, int]:
    """Return the number of samples with nine tenths of the difference, and of all samples."""
    zero_B = torch.zeros(len(step.samples), dtype=torch.float64)
    sum_B = zero_B.index_add(0, step.sample_of_token, difference_N.abs().nan_to_num())
    compared = int((zero_B.index_add(0, step.sample_of_token, (~difference_N.isnan()).double()) > 0).sum())
    share_B = sum_B.sort(descending=True).values.cumsum(0) / sum_B.sum().clamp(min=1e-30)
    return int((share_B < 0.9).sum()) + 1, compared
