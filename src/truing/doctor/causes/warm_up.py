"""The run ends in the warm-up of the learning rate.

Found: The mean rate is below half of the peak, the warm-up is longer than the steps, and neither the reward
nor an evaluation moved. Of a log: the rate rises in a straight line up to the last record.
Excluded: The warm-up ended, or the policy moved nevertheless.
"""

from itertools import pairwise

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, example_log, rising
from truing.doctor.causes.history import History
from truing.doctor.causes.trend import MIN_STEPS

UNEVEN = 0.1
"""Of the last rate: how far the slopes, over all steps, may be from each other."""


def judge(history: History) -> Answer | None:
    """Return how far the rate got."""
    rates, peak = history.series("lr"), history.rate
    if not max(rates):
        return None
    mean, reached = sum(rates) / len(rates), f"the rate reached {max(rates):.2g}"
    if history.run is None:
        reached += f", and rises up to the last of {history.length}"
        ended = not _rises_straight(history)
    else:
        warming = history.run.recipe.optimizer.warmup_steps
        if not warming:
            return None
        reached += f" of {peak:.2g} in {history.length}; optimizer.warmup_steps is {warming}"
        ended = warming <= len(rates) or mean >= peak / 2
    if ended:
        return Answer("ruled out", f"the rate reached {max(rates):.2g}, and {rates[-1]:.2g} at the end")
    if history.outcome.learns or history.outcome.fell:
        return Answer(
            "ruled out", f"{reached}; the policy moved nevertheless: {next(history.outcome.lines())}"
        )
    shorter = {"optimizer.warmup_steps": max(1, len(history.steps) // 10)}
    return Answer("found", reached, 1 - mean / peak, train_again(history, shorter, "with a shorter warm-up"))


def _rises_straight(history: History) -> bool:
    """Return whether the rate at least doubles, and by the same amount in each step, as in a warm-up."""
    known = [(row.step, row.metrics["lr"]) for row in history.steps if "lr" in row.metrics]
    slopes = [
        (rate - before) / (step - last) for (last, before), (step, rate) in pairwise(known) if step > last
    ]
    (first, lowest), (last, highest) = known[0], known[-1]
    uneven = (max(slopes) - min(slopes)) * (last - first) if slopes else 0.0
    return len(known) >= MIN_STEPS and highest > 2 * lowest and uneven <= UNEVEN * highest


def warming() -> History:
    """A warm-up of 2,000 steps, of which the run has 24."""
    rates = [1e-3 * (i + 1) / 2000 for i in range(24)]
    return example_history({"lr": rates}, {"optimizer.warmup_steps": 2000})


def learned_in_warm_up() -> History:
    """The same, while the reward rises."""
    rates = [1e-3 * (i + 1) / 2000 for i in range(24)]
    return example_history({"lr": rates, "reward/mean": rising()}, {"optimizer.warmup_steps": 2000})


def _line(last: float) -> list[float]:
    """Rates on a straight line from 1e-6 to a last one."""
    return [1e-6 + (last - 1e-6) * i / (STEPS - 1) for i in range(STEPS)]


CAUSE = Cause(
    title="the run ends in the warm-up of the learning rate",
    needs=("lr",),
    judge=judge,
    found=(warming, lambda: example_log({"lr": _line(1e-5)})),
    excluded=(
        learned_in_warm_up,
        lambda: example_history(recipe={"optimizer.warmup_steps": 4}),
        lambda: example_log({"lr": _line(1e-5), "reward/mean": rising()}),
        lambda: example_log({"lr": _line(0.0)}),
    ),
)
