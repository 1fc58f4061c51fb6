"""What pairs of forks show: the effect of an arm, with bounds that hold whenever one looks."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from truing.lab.forks.arms import Arm
from truing.lab.stats.e_process import is_above, is_below, lower_bound, max_wealth, min_pairs, upper_bound
from truing.lab.stats.power import min_detectable_excess, seeds_needed
from truing.utils.format import with_count

MOST_PAIRS = 40
"""Of an experiment."""

EVERY_ARM = 4
"""The first pairs, which have every arm; as many more have the better half, and later ones the best alone."""

ERROR = 0.01
"""The probability that any arm is falsely said to help, and that any is falsely said to hurt."""

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
        effect = f"{self.effect:+.3f}{bounds}" if self.differences else "no difference yet"
        return f"{' '.join(self.arm.changes)} ({self.arm.name}): {effect} in {pairs}"


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


def arms_tried(pair: int, open_arms: int) -> int:
    """Return how many of the undecided arms a pair has: time goes to those that may still help."""
    if pair < EVERY_ARM:
        return open_arms
    return math.ceil(open_arms / 2) if pair < 2 * EVERY_ARM else min(open_arms, 1)


def tried(results: Sequence[ArmResult], pair: int) -> list[Arm]:
    """Return the arms of a pair, by the results of the pairs before it: those with the largest effects.

    Bets that a sign is proven are fair whenever an arm's next pair follows from earlier ones alone.
    """
    undecided = [each for each in results if each.verdict == "open"]
    best = sorted(undecided, key=lambda each: -each.effect) if pair else undecided
    return [each.arm for each in best[: arms_tried(pair, len(undecided))]]


def rounds_of(pairs: int, arms: int, jobs: int) -> int:
    """Return how often ``jobs`` forks train beside each other for as many pairs, if no arm is decided."""
    return sum(math.ceil((1 + arms_tried(pair, arms)) / jobs) for pair in range(pairs))


def error_of(arms: int) -> float:
    """Return the error of each statement of an arm: the arms share ``ERROR``."""
    return ERROR / arms


def deviation_of(results: Sequence[ArmResult]) -> float:
    """Return the standard deviation of a difference, pooled over arms; NaN with fewer than two pairs."""
    known = [each.differences for each in results if len(each.differences) > 1]
    squares = math.fsum(statistics.variance(each) * (len(each) - 1) for each in known)
    return math.sqrt(squares / sum(len(each) - 1 for each in known)) if known else math.nan


def summary(
    results: Sequence[ArmResult], steps: int, minutes_of: Callable[[int], float] | None
) -> Iterator[str]:
    """Yield what the experiment shows, the answer first.

    Args:
        results: of all arms.
        steps: of each fork.
        minutes_of: returns what as many pairs take; None if unknown.
    """
    best = max(results, key=lambda each: (each.verdict == "helps", len(each.differences), each.effect))
    if best.verdict == "helps":
        changes = " ".join(best.arm.changes)
        yield f"with {changes} the reward is higher after {steps} more steps ({best.arm.name})"
    else:
        yield from _undecided(results, best, steps, minutes_of)
    order = {"helps": 0, "hurts": 1, "open": 2}
    for each in sorted(results, key=lambda each: order[each.verdict]):
        said = {"helps": "helps", "hurts": "hurts", "open": "no effect is proven"}[each.verdict]
        yield f"{said}: {each}"


def _undecided(
    results: Sequence[ArmResult], best: ArmResult, steps: int, minutes_of: Callable[[int], float] | None
) -> Iterator[str]:
    """Yield what these pairs could have shown, and the time that decides."""
    error, deviation = best.error, deviation_of(results)
    needed, pairs = min_pairs(error), len(best.differences)
    if pairs < needed:
        takes = f", so it takes --minutes {math.ceil(minutes_of(needed))} or more" if minutes_of else ""
        yield f"not decided: {needed} pairs are the fewest that can{takes}"
        return
    seen = min_detectable_excess(deviation, pairs, error)
    yield f"nothing is proven to help within {steps} steps: these pairs show an effect of {seen:.2g} or more"
    more = seeds_needed(best.effect, deviation, error, MOST_PAIRS) if best.effect > 0 else None
    if more is not None and more > pairs:
        takes = f": --minutes {math.ceil(minutes_of(more))}" if minutes_of else ""
        yield f"if {' '.join(best.arm.changes)} helps by {best.effect:.2g}, some {more} pairs show it{takes}"
