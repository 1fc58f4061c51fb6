"""The trend of the reward over the updates: whether it rose, with an interval, and whether it fell again."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import scipy

from truing.analysis.estimate import Interval
from truing.analysis.intervals import CONFIDENCE, REWARD_TOLERANCE
from truing.doctor.hypotheses.levels import falls
from truing.doctor.rules.rwd010 import Measured, fallen, judge
from truing.utils.format import with_count

RECENT_UPDATES = 10
"""Updates in the mean at either end."""

P_VALUE = 0.01
"""Significance level of a rise."""

MIN_UPDATES = 8
"""The fewest updates for a trend."""


@dataclass(frozen=True)
class RewardTrend:
    """Mean rewards at both ends, and the trend between them."""

    updates: int
    first: float
    last: float
    chance: float  # p-value of the slope or the difference of the ends, Bonferroni-corrected
    low: float  # 95 % interval of last − first, by Welch's t; NaN if the ends do not vary
    high: float
    fell: str  # start, end and update of the fall; "" without one
    broke: int = 0  # updates before the fall; 0 without one
    unearned: tuple[str, ...] = ()  # parts with the largest weight of which no attempt earned anything

    @property
    def rises(self) -> bool:
        """Return whether the reward rose over enough updates, and has not fallen."""
        rose = self.last > self.first and self.chance < P_VALUE
        return rose and self.updates >= MIN_UPDATES and not self.fell

    @property
    def learns(self) -> bool:
        """Return whether the reward rises, and not by its smaller parts alone."""
        return self.rises and not self.unearned

    @property
    def gain(self) -> Interval:
        """Return last − first."""
        return Interval(self.last - self.first, self.low, self.high, supposes="normal rewards")

    def summary(self) -> str:
        """Return the trend as one sentence."""
        ends = f"{self.first:.3f} in the first updates, {self.last:.3f} in the last of"
        ends += f" {with_count(self.updates, 'update')}"
        if self.fell:
            return f"the reward fell: {self.fell}"
        if self.learns:
            return f"the run learns: {ends}, {self.gain.signed}"
        if self.rises:
            part = " and ".join(self.unearned)
            return f"the reward goes up, but no attempt earns anything of {part}: {ends}, {self.gain.signed}"
        chance = f" (p = {self.chance:.2g})"
        return f"the reward does not clearly go up: {ends}{chance}"


def reward_trend(rewards: Sequence[float], updates: Sequence[int] = ()) -> RewardTrend:
    """Return the trend of mean rewards.

    Args:
        rewards: of each update.
        updates: the number of each, from 1; consecutive by default.
    """
    if len(rewards) < 3:
        ends = (rewards[0], rewards[-1]) if rewards else (math.nan, math.nan)
        return RewardTrend(len(rewards), *ends, 1.0, math.nan, math.nan, "")
    part = max(1, min(RECENT_UPDATES, len(rewards) // 3))
    before, after = rewards[:part], rewards[-part:]
    first, last = math.fsum(before) / part, math.fsum(after) / part
    if max(rewards) - min(rewards) <= REWARD_TOLERANCE:
        return RewardTrend(len(rewards), first, last, 1.0, math.nan, math.nan, "")
    slope = float(scipy.stats.linregress(range(len(rewards)), rewards).pvalue)
    low, high, ends_apart = _welch(before, after)
    chance = min(1.0, 2 * min(slope, ends_apart))  # two tests of the same updates
    measured = Measured(falls(rewards), updates or range(1, len(rewards) + 1))
    fall, claims = fallen(measured), list(judge(measured))
    fell = claims[0].what.removeprefix("the mean reward fell ") if claims else ""
    broke = 0 if fall is None else fall.broke
    return RewardTrend(len(rewards), first, last, chance, low, high, fell, broke)


def before_the_fall(way: RewardTrend, values: Sequence[float]) -> float:
    """Return the mean of a metric over the updates before the reward fell; NaN without a fall or values.

    A change with the fall, or after it, is no cause of it.

    Args:
        way: of the reward.
        values: of each update with a reward; NaN if unknown.
    """
    known = [value for value in values[: way.broke] if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _welch(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Return the interval of the difference of two means of equally many values, and its p-value.

    d ± t √((s² + s′²) ÷ n), t of (n − 1) (s² + s′²)² ÷ (s⁴ + s′⁴) degrees of freedom.
    """
    count = len(before)
    if count < 2 or max(max(each) - min(each) for each in (before, after)) <= REWARD_TOLERANCE:
        return math.nan, math.nan, 1.0
    varied = [statistics.variance(each) for each in (before, after)]
    freedom = (count - 1) * sum(varied) ** 2 / sum(each**2 for each in varied)
    apart, error = statistics.fmean(after) - statistics.fmean(before), math.sqrt(sum(varied) / count)
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return apart - half, apart + half, float(2 * scipy.stats.t.sf(abs(apart) / error, freedom))
