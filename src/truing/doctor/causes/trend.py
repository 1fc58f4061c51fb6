"""The trend of the reward over the steps: whether it rose, with an interval, and whether it fell again."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import scipy

from truing.analysis.estimate import Interval
from truing.analysis.intervals import CONFIDENCE, REWARD_TOLERANCE
from truing.doctor.levels import MIN_WINDOW, falls
from truing.doctor.rules.rwd010 import ERRORS, MOST, fall_text, fallen
from truing.utils.format import with_count

RECENT_STEPS = 10
"""Steps in the mean at either end."""

P_VALUE = 0.01
"""Significance level of a rise."""

MIN_STEPS = 8
"""The fewest steps for a trend."""

POWER = 0.84
"""Standard errors beyond the interval's half that a difference is seen with in four of five cases."""


@dataclass(frozen=True)
class Trend:
    """Mean rewards at both ends, and the trend between them."""

    steps: int
    first: float
    last: float
    chance: float  # p-value of the slope or the difference of the ends, Bonferroni-corrected
    low: float  # 95 % interval of last − first, by Welch's t; NaN if the ends do not vary
    high: float
    error: float  # standard error of last − first; NaN if the ends do not vary
    fell: str  # start, end and step of the fall; "" without one
    broke: int = 0  # steps before the fall; 0 without one, or if it falls from the first steps on
    lost: float = 0.0  # share of the height above the floor that the fall cost
    length: str = ""  # the steps as text

    @property
    def rises(self) -> bool:
        """Return whether the reward rose over enough steps, by more than 0, and has not fallen again."""
        certain = self.chance < P_VALUE and self.steps >= MIN_STEPS and not self.low <= 0
        return self.last > self.first and certain and not self.fell

    @property
    def falls(self) -> bool:
        """Return whether it ends lower than it began, and not by chance."""
        certain = self.chance < P_VALUE and self.steps >= MIN_STEPS
        return self.last < self.first and (certain or bool(self.fell))

    @property
    def down(self) -> bool:
        """Return whether the interval of its change is below 0."""
        return self.high < 0

    @property
    def gain(self) -> Interval:
        """Return last − first."""
        return Interval(self.last - self.first, self.low, self.high, supposes="normal rewards")

    @property
    def resolves(self) -> float:
        """The change between the ends that these steps show in four of five cases; NaN if unknown."""
        return (self.high - self.low) / 2 + POWER * self.error

    def summary(self) -> str:
        """Return the trend as one sentence."""
        if self.fell:
            return f"the reward fell {self.fell}"
        ends = f"{self.first:.3f} in the first steps, {self.last:.3f} in the last of"
        ends += f" {self.length}, {self.gain.signed}"
        if self.rises:
            return f"the reward goes up: {ends}"
        if self.low > 0:
            return f"the reward may go up (p = {self.chance:.1g}): {ends}"
        if self.down:
            return f"the reward goes down: {ends}"
        power = f"; these steps would show a change of {self.resolves:.2g}" if self.resolves > 0 else ""
        return f"the reward does not clearly go up: {ends}{power}"


def length_text(numbers: Sequence[int]) -> str:
    """Return how many steps there are, as text; of records that leave out steps, which ones they are of.

    >>> length_text([1, 2, 3]), length_text([5, 10, 15])
    ('3 steps', '3 records of steps 5 to 15')
    """
    count = len(numbers)
    if not numbers or numbers[-1] - numbers[0] + 1 == count:
        return with_count(count, "step")
    return f"{with_count(count, 'record')} of steps {numbers[0]} to {numbers[-1]}"


def reward_trend(
    rewards: Sequence[float], numbers: Sequence[int] = (), errors: Sequence[float] = ()
) -> Trend:
    """Return the trend of mean rewards.

    Args:
        rewards: of each step.
        numbers: the number of each, from 1; consecutive by default.
        errors: the standard error of each mean, from the rewards within the step; NaN if unknown.
    """
    count, places = len(rewards), list(numbers) or list(range(1, len(rewards) + 1))
    length = length_text(places)
    ends = (rewards[0], rewards[-1]) if rewards else (math.nan, math.nan)
    unknown = (math.nan, math.nan, math.nan)
    if count < 3:
        return Trend(count, *ends, 1.0, *unknown, "", length=length)
    part = max(1, min(RECENT_STEPS, count // 3))
    before, after = rewards[:part], rewards[-part:]
    first, last = math.fsum(before) / part, math.fsum(after) / part
    if max(rewards) - min(rewards) <= REWARD_TOLERANCE:
        return Trend(count, first, last, 1.0, *unknown, "", length=length)
    slope = float(scipy.stats.linregress(range(count), rewards).pvalue)
    low, high, error, ends_apart = _welch(before, after)
    chance = min(1.0, 2 * min(slope, ends_apart))  # two tests of the same steps
    fell = _fall(rewards, places) or _early_fall(rewards, places, errors) or _dropped(before, after, places)
    return Trend(count, first, last, chance, low, high, error, *(fell or Fell("", 0, 0.0)), length)


def error_of_mean(metrics: Mapping[str, float]) -> float:
    """Return the standard error of a step's mean reward; NaN if unknown.

    Rollouts of a group are alike, so that they count as half as many.
    """
    known = (metrics.get(name, math.nan) for name in ("reward/std", "tokens/sampled", "length/mean"))
    deviation, tokens, length = known
    return deviation * math.sqrt(2 * length / tokens) if tokens > 0 else math.nan


class Fell(NamedTuple):
    """A fall."""

    text: str
    broke: int  # steps before it; 0 if it falls steadily from the first ones on
    lost: float  # the share of the height that it cost


def _fall(rewards: Sequence[float], numbers: Sequence[int]) -> Fell | None:
    """Return a fall from the best windows of steps to the last ones."""
    fall = fallen(falls(rewards))
    return fall and Fell(fall_text(fall, numbers), 0 if fall.steady else fall.broke, fall.share)


def _early_fall(rewards: Sequence[float], numbers: Sequence[int], errors: Sequence[float]) -> Fell | None:
    """Return a fall within the first steps, before there is a window: most of the height is lost for good."""
    floor = min(0.0, *rewards)
    for count in range(1, min(MIN_WINDOW, len(rewards) - MIN_WINDOW + 1)):
        before, after = rewards[:count], rewards[count:]
        known = [error for error in errors[:count] if math.isfinite(error)]
        if len(known) < count:
            return None
        best, now = statistics.fmean(before), statistics.fmean(after)
        error = math.hypot(*known) / count
        lost = (best - now) / (best - floor) if best > floor else 0.0
        if lost >= MOST and max(after) < min(before) and best - now >= ERRORS * error:
            return Fell(f"from {best:.3g} to {now:.3g}; it broke at step {numbers[count]}", count, lost)
    return None


def _dropped(before: Sequence[float], after: Sequence[float], numbers: Sequence[int]) -> Fell | None:
    """Return a fall between the ends of a record that is too short for windows."""
    if len(before) >= MIN_WINDOW or len(before) < 2:
        return None
    first, last, floor = statistics.fmean(before), statistics.fmean(after), min(0.0, *after)
    if max(after) >= min(before) or first - last < MOST * (first - floor):
        return None
    place = len(numbers) - len(after)
    text = f"from {first:.3g} to {last:.3g}, the latter since step {numbers[place]} at the latest"
    return Fell(text, place, (first - last) / (first - floor))


def _welch(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the interval of the difference of two means of equally many values, its error and its p-value.

    d ± t √((s² + s′²) ÷ n), t of (n − 1) (s² + s′²)² ÷ (s⁴ + s′⁴) degrees of freedom.
    """
    count = len(before)
    if count < 2 or max(max(each) - min(each) for each in (before, after)) <= REWARD_TOLERANCE:
        return math.nan, math.nan, math.nan, 1.0
    varied = [statistics.variance(each) for each in (before, after)]
    freedom = (count - 1) * sum(varied) ** 2 / sum(each**2 for each in varied)
    apart, error = statistics.fmean(after) - statistics.fmean(before), math.sqrt(sum(varied) / count)
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return apart - half, apart + half, error, float(2 * scipy.stats.t.sf(abs(apart) / error, freedom))
