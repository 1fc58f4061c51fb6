"""Quality of the evidence for a verdict, by stated rules."""

import math
from collections.abc import Sequence
from typing import Literal

from truing.analysis.intervals import interval, is_significant
from truing.lab.stats.pairs import Pair, gain_bounds, task_differences
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Header
from truing.utils.format import with_count

Quality = Literal["high", "medium", "low", "–"]

HIGH_QUALITY_PAIRS = 8
"""Fewest pairs of high-quality evidence."""


def quality_of(
    header: Header, verdict: str, pairs: Sequence[Pair], bounds: tuple[float, float], failed: int
) -> tuple[Quality, str]:
    """Return the quality of an experiment's verdict, and the reason.

    High: eight pairs or more, no failed run, a validated effect is proven to be of interest, no pair has the
    opposite sign and a larger size than the effect, the mean is within its bounds, and the interval over
    tasks is on the same side.
    Medium: one of these is missing. Low: several are, or nothing is decided. An exact check is always high, a
    prior always low.
    """
    if verdict == "TESTING":
        return "–", "it is running"
    if verdict == "INCONCLUSIVE":
        return "low", "nothing is decided"
    lacking = []
    if len(pairs) < HIGH_QUALITY_PAIRS:
        lacking.append(f"{with_count(len(pairs), 'pair')}, fewer than {HIGH_QUALITY_PAIRS}")
    if failed:
        lacking.append(with_count(failed, "run") + " failed")
    low, high = bounds
    is_of_interest = low >= header.smallest_effect or high <= -header.smallest_effect
    if verdict != "INVALIDATED" and not is_of_interest:
        lacking.append("the effect may be smaller than the smallest of interest")
    if verdict != "INVALIDATED" and (opposite := _worst_opposite(header, pairs)):
        lacking.append(f"one pair has the opposite sign, {opposite:+.3f}")
    elif not low <= _mean(header, pairs) <= high:
        lacking.append("the mean is outside its bounds: a few pairs weigh more than all others")
    if EVALUATION_METRIC.fullmatch(header.metric) and not _holds_on_other_tasks(header, verdict, pairs):
        lacking.append("the result may differ on other tasks of the kind")
    reason = "; ".join(lacking) or f"{len(pairs)} pairs, none failed, the same for other tasks"
    quality: Quality = "high" if not lacking else "medium" if len(lacking) == 1 else "low"
    return quality, reason


def _holds_on_other_tasks(header: Header, verdict: str, pairs: Sequence[Pair]) -> bool:
    """Whether the 95 % interval over tasks is on the side of the verdict."""
    gains = task_differences(pairs)
    gain = interval(gains, gain_bounds(pairs))
    if math.isnan(gain.low):
        return False
    if verdict == "INVALIDATED":
        largest = gain.high if header.expects_increase else -gain.low
        return largest < header.smallest_effect
    return is_significant(gain, gains)


def _worst_opposite(header: Header, pairs: Sequence[Pair]) -> float:
    """Return the largest difference of opposite sign, if it is larger than the effect; else 0."""
    effect = _mean(header, pairs)
    worst = min(
        (pair.difference(header.metric) for pair in pairs),
        key=lambda difference: difference * effect,
        default=0.0,
    )
    return worst if worst * effect < 0 and abs(worst) > abs(effect) else 0.0


def _mean(header: Header, pairs: Sequence[Pair]) -> float:
    return math.fsum(pair.difference(header.metric) for pair in pairs) / max(1, len(pairs))
