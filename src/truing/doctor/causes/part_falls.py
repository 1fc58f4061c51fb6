"""The reward rises by some of its parts, while another one falls.

Found: The part with the largest weight falls.
Open: Another part falls, or one of a log, which does not say how much each part counts.
Excluded: No part falls but those that the recipe says to shape the reward, or the reward does not rise.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import look
from truing.doctor.causes.example import example_history, example_log, falling, rising
from truing.doctor.causes.history import History
from truing.metrics.aliases import PART


def judge(history: History) -> Answer | None:
    """Return the parts that fall, and those that rise."""
    trends, fell = history.part_trends, history.falling
    if len(trends) < 2 or not history.trend.rises:
        return None
    ends = "; ".join(f"{name} {each.first:.3g} → {each.last:.3g}" for name, each in trends.items())
    if not fell:
        return Answer("ruled out", ends)
    shares = [(each.first - each.last) / abs(each.first) for each in fell.values() if each.first]
    lost = max(shares, default=1.0)
    title = f"{' and '.join(fell)} falls while the reward rises"
    outcomes = "if fewer answers are right, the reward is hacked; if this part only shapes it, it is no fault"
    state = "found" if history.outcome.hacked else "open"
    return Answer(state, ends, min(1.0, lost), look(history), outcomes, title)


HACKED = {
    "reward/mean": rising(0.5, 1.1),
    f"{PART}format": rising(0.1, 1.0),
    f"{PART}exact": falling(0.44, 0.08),
}


def hacked() -> History:
    """The format is paid, and right answers get fewer."""
    history = example_history(HACKED)
    return replace(history, run=replace(history.facts, weights={"exact": 1.0, "format": 1.0}))


def shaped() -> History:
    """A part falls that only shapes the reward."""
    history = example_history(HACKED, {"doctor.shaping": ["exact"]})
    return replace(history, run=replace(history.facts, weights={"exact": 0.1, "format": 1.0}))


CAUSE = Cause(
    title="a part of the reward falls while the reward rises",
    judge=judge,
    found=(hacked, lambda: example_log(HACKED)),
    excluded=(shaped, lambda: example_log(HACKED | {f"{PART}exact": 0.4})),
)
