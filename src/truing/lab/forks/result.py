"""What pairs of forks show: the effect of an arm, with bounds that hold whenever one looks."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from truing.lab.forks.arms import Arm
from truing.lab.stats.e_process import is_above, is_below, lower_bound, max_wealth, min_pairs, upper_bound
from truing.utils.format import with_count

ERROR = 0.05
"""The probability that any arm is falsely said to differ."""

Verdict = Literal["helps", "hurts", "open"]


@dataclass(frozen=True)
class ArmResult:
    """The differences of an arm and the unchanged forks, by pair."""

    arm: Arm
    differences: tuple[float, ...]
    error: float  # of each of its two statements

    @property
    def verdict(self) -> Verdict:
        """Return whether the sign of the effect is proven.

        If the arm has no effect, the two forks of a pair are exchangeable, so that both signs of a
        difference are equally likely: bets on signs are fair, and may end whenever they are won.
        """
        if is_above(self.differences, 0.0, self.error):
            return "helps"
        return "hurts" if is_below(self.differences, 0.0, self.error) else "open"

    @property
    def effect(self) -> float:
        """Return the mean of the differences; NaN before the first pair."""
        return statistics.fmean(self.differences) if self.differences else math.nan

    @property
    def e_value(self) -> float:
        """Return the most that bets on a sign have won, of either sign; 1 before the first pair."""
        data = np.asarray(self.differences)
        return float(max(max_wealth(data), max_wealth(-data)))

    @property
    def interval(self) -> tuple[float, float]:
        """Return bounds of the effect; infinite while there are too few pairs."""
        return lower_bound(self.differences, self.error), upper_bound(self.differences, self.error)

    def __str__(self) -> str:
        low, high = self.interval
        bounds = f" [{low:+.3f}, {high:+.3f}]" if math.isfinite(low) and math.isfinite(high) else ""
        pairs = with_count(len(self.differences), "pair")
        return f"{self.arm.name} ({' '.join(self.arm.changes)}): {self.effect:+.3f}{bounds} in {pairs}"


def results_of(arms: Sequence[Arm], rewards: Mapping[tuple[str, int], float]) -> list[ArmResult]:
    """Return the result of each arm.

    Args:
        arms: of the experiment.
        rewards: of each finished fork, by the name of its arm ("" is unchanged) and its pair.
    """
    pairs = sorted(pair for name, pair in rewards if not name)
    return [
        ArmResult(
            arm,
            tuple(
                rewards[arm.name, pair] - rewards["", pair] for pair in pairs if (arm.name, pair) in rewards
            ),
            error_of(len(arms)),
        )
        for arm in arms
    ]


def error_of(arms: int) -> float:
    """Return the error of each statement: two for each arm share ``ERROR``."""
    return ERROR / (2 * arms)


def summary(results: Sequence[ArmResult], steps: int, pair_minutes: float | None) -> Iterator[str]:
    """Yield what the experiment shows, the answer first.

    Args:
        results: of all arms.
        steps: of each fork.
        pair_minutes: that one fork of each arm takes, with the unchanged one; None if unknown.
    """
    needed = min_pairs(error_of(len(results)))
    helps = [each for each in results if each.verdict == "helps"]
    if helps:
        best = max(helps, key=lambda each: each.effect)
        changes = " ".join(best.arm.changes)
        yield f"{best.arm.name}: with {changes} the reward is higher after {steps} more steps"
    elif min(len(each.differences) for each in results) < needed:
        line = f"not decided: {needed} pairs are the fewest that can"
        takes = "" if pair_minutes is None else f"--minutes {math.ceil(needed * pair_minutes)} or more"
        yield f"{line}, so it takes {takes}" if takes else line
    else:
        yield f"nothing helps that these pairs can tell, within {steps} steps"
    order = {"helps": 0, "hurts": 1, "open": 2}
    for each in sorted(results, key=lambda each: order[each.verdict]):
        said = {"helps": "helps", "hurts": "hurts", "open": "no effect is proven"}[each.verdict]
        yield f"{said}: {each}"
