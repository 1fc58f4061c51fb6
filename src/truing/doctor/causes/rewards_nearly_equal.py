"""The rewards of a group hardly differ, and their differences become full advantages.

Found: Within groups the rewards deviate by less than a hundredth of their range, and advantages are divided
by that deviation.
Excluded: They differ more, or advantages keep the scale of the rewards.
"""

import math
import statistics
from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import look
from truing.doctor.causes.example import example_history, example_sample
from truing.doctor.causes.groups import groups_of
from truing.doctor.causes.history import History

SMALL = 0.01
"""Of the range of the reward."""

FULL = 0.1
"""An advantage that is not scaled is at most the difference of rewards."""


def judge(history: History) -> Answer | None:
    """Return the deviation of rewards within groups, beside the range of the reward."""
    groups = [each for each in groups_of(history) if not each.tied]
    if not groups:
        return None
    spread = math.sqrt(statistics.fmean(statistics.pvariance(each.rewards) for each in groups))
    weights = sum(abs(x) for x in history.run.weights.values()) if history.run else 0.0
    span = max(weights, *(abs(x) for each in groups for x in each.rewards))
    largest = history.late("advantage/max_abs")
    because = f"rewards of a group deviate by {spread:.2g} of a range of {span:.3g}"
    if spread >= SMALL * span:
        return Answer("ruled out", because)
    because += f", and advantages are up to {largest:.2g}"
    if largest < FULL:
        return Answer("ruled out", because)
    outcomes = "if better answers are not paid more, the differences are noise; if they are, widen them"
    return Answer("found", because, 1.0, look(history), outcomes)


def noise() -> History:
    """Rewards of 0.6 that differ by 3e-4."""
    return example_history(samples=[example_sample(i, reward=0.6 + 1e-4 * (i % 4)) for i in range(32)])


def unscaled() -> History:
    """The same, without a division by the deviation."""
    return replace(noise(), steps=example_history({"advantage/max_abs": 3e-4}).steps)


CAUSE = Cause(
    title="rewards of a group hardly differ, and count in full",
    needs=("samples", "advantage/max_abs"),
    judge=judge,
    rules=("ADV007",),
    found=(noise,),
    excluded=(unscaled, example_history),
)
