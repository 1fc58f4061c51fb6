"""Between which ratios the clip of a loss lies, found from the token gradients of all optimizer steps."""

import math
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.formulas.loss import ROUNDING, Fit, Loss, policy_gradients

ONE = 1e-6
"""A smaller difference from a ratio of 1 is rounding."""


class Clip(NamedTuple):
    """Ratios θ ÷ old of tokens that the clip left a gradient, and of those that it took one from."""

    kept_high: float = -math.inf  # largest with a gradient, at positive advantages
    cut_high: float = math.inf  # smallest without one
    kept_low: float = math.inf  # smallest with a gradient, at negative advantages
    cut_low: float = -math.inf  # largest below 1 without one
    cut_dual: float = math.inf  # smallest above 1 without one

    def joined(self, other: "Clip") -> "Clip":
        """Return the ratios of both."""
        return Clip(
            max(self.kept_high, other.kept_high),
            min(self.cut_high, other.cut_high),
            min(self.kept_low, other.kept_low),
            max(self.cut_low, other.cut_low),
            min(self.cut_dual, other.cut_dual),
        )

    @property
    def text(self) -> str:
        """The clip of both signs, as text."""
        if all(abs(each - 1) < ONE for each in self if math.isfinite(each)):
            return "not to be seen: all ratios are 1"
        sides = []
        if math.isfinite(self.kept_high) or math.isfinite(self.cut_high):
            sides.append(f"{_side(self.kept_high, self.cut_high, 'up')} where advantages are positive")
        if math.isfinite(self.kept_low) or math.isfinite(self.cut_low):
            sides.append(f"{_side(self.kept_low, self.cut_low, 'down')} where they are negative")
        if math.isfinite(self.cut_dual):
            sides.append(f"none has a gradient there from {self.cut_dual:.3g} on")
        return ", ".join(sides)


def clip_of(step: Step, loss: Loss, fit: Fit) -> Clip | None:
    """Return the ratios of one step; None if its gradients are neither those of the loss nor clipped.

    Args:
        step: with the gradients of each optimizer step.
        loss: that the gradients of the first one follow.
        fit: its numbers.
    """
    clip = Clip()
    for _, this in step.at_each_optimizer_step():
        setup = replace(this.setup, aggregation=loss.aggregation)
        got_K, whole_K, ratio_K, advantage_K = policy_gradients(replace(this, setup=setup), loss.kl, fit)
        if not len(got_K):
            continue
        near = ROUNDING * float(whole_K.abs().max())
        kept_K, cut_K = (got_K - whole_K).abs() <= near, got_K.abs() <= near
        if not (kept_K | cut_K).all():
            return None
        cut_K, kept_K = cut_K & ~kept_K, kept_K & ~cut_K  # a gradient that is small anyway tells nothing
        high_K, above_K = advantage_K > 0, ratio_K > 1
        clip = clip.joined(
            Clip(
                _largest(ratio_K[kept_K & high_K]),
                _smallest(ratio_K[cut_K & high_K]),
                _smallest(ratio_K[kept_K & ~high_K]),
                _largest(ratio_K[cut_K & ~high_K & ~above_K]),
                _smallest(ratio_K[cut_K & ~high_K & above_K]),
            )
        )
    return clip if clip != Clip() else None


def _largest(ratios: Tensor) -> float:
    return float(ratios.max()) if len(ratios) else -math.inf


def _smallest(ratios: Tensor) -> float:
    return float(ratios.min()) if len(ratios) else math.inf


def _side(kept: float, cut: float, way: str) -> str:
    """Return the clip on one side of 1, as text."""
    if not math.isfinite(cut):
        return f"none {way} to a ratio of {kept:.3g}"
    if not math.isfinite(kept):
        return f"at a ratio of {cut:.3g} already"
    if (kept < cut) == (way == "up"):
        return f"between ratios of {kept:.4g} and {cut:.4g}"
    return f"at no one ratio: {kept:.3g} has a gradient, and {cut:.3g} none"
