"""How far a verdict can be trusted, by rules that are stated."""

import math
from collections.abc import Sequence
from typing import Literal

from truing.analysis.intervals import interval, is_significant
from truing.lab.stats.pairs import Pair, gain_bounds, task_differences
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Header
from truing.utils.format import with_count

Quality = Literal["high", "medium", "low", "–"]

HIGH_QUALITY_PAIRS = 8
"""Pairs from which evidence may be high."""


def quality_of(
    header: Header, verdict: str, pairs: Sequence[Pair], bounds: tuple[float, float], failed: int
) -> tuple[Quality, str]:
    """The quality of an experiment's verdict, and why.

    High: eight pairs or more, no run failed, what is validated is proven to be large enough to matter, no
    pair says the opposite by more than the effect, the mean is within its bounds, and by the tasks alone the
    effect is on the same side.
    Medium: one of these lacks. Low: more of them, or nothing is decided. An exact check is always high; what
    was only told is always low.
    """
    if verdict == "TESTING":
        return "–", "it goes on"
    if verdict == "INCONCLUSIVE":
        return "low", "nothing is decided"
    lacking = []
    if len(pairs) < HIGH_QUALITY_PAIRS:
        lacking.append(f"{with_count(len(pairs), 'pair')}, fewer than {HIGH_QUALITY_PAIRS}")
    if failed:
        lacking.append(with_count(failed, "run") + " failed")
    low, high = bounds
    matters = low >= header.smallest_effect or high <= -header.smallest_effect
    if verdict != "INVALIDATED" and not matters:
        lacking.append("the effect may be too small to matter")
    if verdict != "INVALIDATED" and (opposite := _worst_opposite(header, pairs)):
        lacking.append(f"one pair says the opposite, {opposite:+.3f}")
    elif not low <= _mean(header, pairs) <= high:
        lacking.append("the mean is outside its bounds: a few pairs weigh more than all others")
    if EVALUATION_METRIC.fullmatch(header.metric) and not _holds_on_other_tasks(header, verdict, pairs):
        lacking.append("on other tasks of the kind it could be otherwise")
    told = "; ".join(lacking) or f"{len(pairs)} pairs, none failed, the same on other tasks"
    found: Quality = "high" if not lacking else "medium" if len(lacking) == 1 else "low"
    return found, told


def _holds_on_other_tasks(header: Header, verdict: str, pairs: Sequence[Pair]) -> bool:
    """Whether the 95 % interval over tasks is on the side that the verdict says."""
    gains = task_differences(pairs)
    found = interval(gains, gain_bounds(pairs))
    if math.isnan(found.low):
        return False
    if verdict == "INVALIDATED":
        most = found.high if header.expects_increase else -found.low
        return most < header.smallest_effect
    return is_significant(found, gains)


def _worst_opposite(header: Header, pairs: Sequence[Pair]) -> float:
    """The pair that goes farthest the other way, where it goes farther than the effect; else 0."""
    effect = _mean(header, pairs)
    worst = min(
        (pair.difference(header.metric) for pair in pairs), key=lambda each: each * effect, default=0.0
    )
    return worst if worst * effect < 0 and abs(worst) > abs(effect) else 0.0


def _mean(header: Header, pairs: Sequence[Pair]) -> float:
    return math.fsum(pair.difference(header.metric) for pair in pairs) / max(1, len(pairs))
