"""The trend of the reward over the steps: whether it rose, with an interval, and whether it fell again."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import scipy

from truing.analysis.estimate import Interval
from truing.analysis.intervals import CONFIDENCE, REWARD_TOLERANCE
from truing.doctor.diagnosis import Diagnosis, is_finding
from truing.doctor.hypotheses.levels import MIN_WINDOW, falls
from truing.doctor.rules.rwd010 import MOST, Measured, fallen, judge
from truing.utils.format import with_count

RECENT_UPDATES = 10
"""Steps in the mean at either end."""

P_VALUE = 0.01
"""Significance level of a rise."""

MIN_UPDATES = 8
"""The fewest steps for a trend."""


@dataclass(frozen=True)
class RewardTrend:
    """Mean rewards at both ends, and the trend between them."""

    updates: int
    first: float
    last: float
    chance: float  # p-value of the slope or the difference of the ends, Bonferroni-corrected
    low: float  # 95 % interval of last − first, by Welch's t; NaN if the ends do not vary
    high: float
    fell: str  # start, end and step of the fall; "" without one
    broke: int = 0  # steps before the fall; 0 without one
    fault: str = ""  # why the rewards are not a sign of learning: the finding, as text
    unearned: tuple[str, ...] = ()  # parts with the largest weight of which no rollout earned anything

    @property
    def rises(self) -> bool:
        """Return whether the reward rose over enough steps, has not fallen, and nothing is broken."""
        rose = self.last > self.first and self.chance < P_VALUE
        return rose and self.updates >= MIN_UPDATES and not (self.fell or self.fault)

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
        ends = f"{self.first:.3f} in the first steps, {self.last:.3f} in the last of"
        ends += f" {with_count(self.updates, 'step')}"
        if self.fell:
            return f"the reward fell: {self.fell}"
        if self.fault:
            return f"look at this first: {self.fault}; the reward: {ends}"
        if self.learns:
            return f"the run learns: {ends}, {self.gain.signed}"
        if self.rises:
            part = " and ".join(self.unearned)
            return f"the reward goes up, but no rollout earns anything of {part}: {ends}, {self.gain.signed}"
        chance = f" (p = {self.chance:.2g})"
        return f"the reward does not clearly go up: {ends}{chance}"


BREAKS = ("OPT005", "OPT015")
"""Rules whose findings say that no step trains, whatever the reward does."""


def fault_of(diagnosis: Diagnosis) -> str:
    """Return the finding of one of these rules, as text; "" without one."""
    found = {each.code: each.findings for each in diagnosis.results() if is_finding(each)}
    # an infinite number is clearest where it came first, a row of steps where it is longest
    clearest = [found[code][place] for code, place in zip(BREAKS, (-1, 0), strict=True) if code in found]
    return f"{clearest[0].claim.what} ({clearest[0].where})" if clearest else ""


def reward_trend(rewards: Sequence[float], updates: Sequence[int] = (), fault: str = "") -> RewardTrend:
    """Return the trend of mean rewards.

    Args:
        rewards: of each step.
        updates: the number of each, from 1; consecutive by default.
        fault: why they are not a sign of learning; "" if nothing is known to be broken.
    """
    if len(rewards) < 3:
        ends = (rewards[0], rewards[-1]) if rewards else (math.nan, math.nan)
        return RewardTrend(len(rewards), *ends, 1.0, math.nan, math.nan, "", fault=fault)
    part = max(1, min(RECENT_UPDATES, len(rewards) // 3))
    before, after = rewards[:part], rewards[-part:]
    first, last = math.fsum(before) / part, math.fsum(after) / part
    if max(rewards) - min(rewards) <= REWARD_TOLERANCE:
        return RewardTrend(len(rewards), first, last, 1.0, math.nan, math.nan, "", fault=fault)
    slope = float(scipy.stats.linregress(range(len(rewards)), rewards).pvalue)
    low, high, ends_apart = _welch(before, after)
    chance = min(1.0, 2 * min(slope, ends_apart))  # two tests of the same steps
    measured = Measured(falls(rewards), updates or range(1, len(rewards) + 1))
    fall, claims = fallen(measured), list(judge(measured))
    fell, broke = _dropped(before, after, measured.updates[-part]), len(rewards) - part
    if fall is not None:
        fell, broke = claims[0].what.removeprefix("the mean reward fell "), fall.broke
    return RewardTrend(len(rewards), first, last, chance, low, high, fell, broke if fell else 0, fault)


def _dropped(before: Sequence[float], after: Sequence[float], since: int) -> str:
    """Return a fall between the ends of a log that is too short for windows, as text; "" without one."""
    if len(before) >= MIN_WINDOW or len(before) < 2:
        return ""
    first, last, floor = statistics.fmean(before), statistics.fmean(after), min(0.0, *after)
    if max(after) >= min(before) or first - last < MOST * (first - floor):
        return ""
    return f"from {first:.3g} to {last:.3g}, the latter since step {since} at the latest"


def before_the_fall(way: RewardTrend, values: Sequence[float]) -> float:
    """Return the mean of a metric over the steps before the reward fell; NaN without a fall or values.

    A change with the fall, or after it, is not a cause of it.

    Args:
        way: of the reward.
        values: of each step with a reward; NaN if unknown.
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
