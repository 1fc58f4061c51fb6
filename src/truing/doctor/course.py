"""How the reward went over the updates: whether it rose, with an interval, and whether it fell again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from truing.doctor.levels import falls
from truing.doctor.rules.rwd010 import Measured, fallen, judge
from truing.words import counted

LAST = 10
"""Updates at either end that are looked at closely."""

CHANCE = 0.01
"""Of such a rise in noise."""

ENOUGH = 8
"""Updates below which no course can be told."""


@dataclass(frozen=True)
class Course:
    """Mean rewards at both ends, and what lies between."""

    updates: int
    first: float
    last: float
    chance: float  # of such a slope, or of such a difference of the ends, in noise: the smaller
    low: float  # 95 % interval of last − first, by Welch's t
    high: float
    fell: str  # from where to where, and at which update; "" where it did not
    broke: int = 0  # how many updates were before the fall; 0 where there was none

    @property
    def learns(self) -> bool:
        """Whether the reward rose, and stays up."""
        return self.last > self.first and self.chance < CHANCE and not self.fell

    def told(self) -> str:
        """One sentence."""
        ends = f"{self.first:.3f} in the first updates, {self.last:.3f} in the last of"
        ends += f" {counted(self.updates, 'update')}"
        if self.fell:
            return f"the reward fell: {self.fell}"
        if self.learns:
            return (
                f"the run learns: {ends}, {self.last - self.first:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"
            )
        chance = f" (chance of such a slope in noise {self.chance:.2g})"
        return f"the reward does not clearly go up: {ends}{chance}"


def course(rewards: Sequence[float], updates: Sequence[int] = ()) -> Course:
    """The course of mean rewards.

    Args:
        rewards: update by update.
        updates: the number of each, from 1; they follow one another where none is given.
    """
    if len(rewards) < 3:
        ends = (rewards[0], rewards[-1]) if rewards else (math.nan, math.nan)
        return Course(len(rewards), *ends, 1.0, -math.inf, math.inf, "")
    part = max(1, min(LAST, len(rewards) // 3))
    before, after = rewards[:part], rewards[-part:]
    first, last = math.fsum(before) / part, math.fsum(after) / part
    if len(set(rewards)) == 1:
        return Course(len(rewards), first, last, 1.0, 0.0, 0.0, "")
    slope = float(stats.linregress(range(len(rewards)), rewards).pvalue)
    low, high, chance = -math.inf, math.inf, 1.0
    if part > 1 and (len(set(before)) > 1 or len(set(after)) > 1):
        welch = stats.ttest_ind(after, before, equal_var=False)
        low, high = map(float, welch.confidence_interval(0.95))
        chance = float(welch.pvalue)
    found = Measured(falls(rewards), updates or range(1, len(rewards) + 1))
    fall, claims = fallen(found), list(judge(found))
    fell = claims[0].what.removeprefix("the mean reward fell ") if claims else ""
    broke = 0 if fall is None else fall.broke
    return Course(len(rewards), first, last, min(slope, chance), low, high, fell, broke)


def before_the_fall(way: Course, values: Sequence[float]) -> float:
    """The mean of a number over the updates before the reward broke; NaN where it did not, or nobody knows.

    What began with the fall, or after it, is no cause of it.

    Args:
        way: of the reward.
        values: of each update that told its reward; NaN where it did not tell this.
    """
    known = [value for value in values[: way.broke] if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan
