"""The run ends in the warm-up of the learning rate.

Found: The mean rate is below half of the peak, the warm-up is longer than the steps, and neither the reward
nor an evaluation moved.
Excluded: The warm-up ended, or the policy moved nevertheless.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History
from truing.utils.format import with_count


def judge(history: History) -> Answer | None:
    """Return how far the rate got."""
    warming, rates, peak = history.facts.recipe.optimizer.warmup_steps, history.series("lr"), history.rate
    if not warming or not max(rates):
        return None
    mean = sum(rates) / len(rates)
    reached = f"the rate reached {max(rates):.2g} of {peak:.2g} in {with_count(len(rates), 'step')}"
    reached += f"; optimizer.warmup_steps is {warming}"
    if warming <= len(rates) or mean >= peak / 2:
        return Answer("ruled out", reached)
    if history.outcome.learns or history.outcome.fell:
        return Answer(
            "ruled out", f"{reached}; the policy moved nevertheless: {next(history.outcome.lines())}"
        )
    shorter = {"optimizer.warmup_steps": max(1, len(history.steps) // 10)}
    return Answer("found", reached, 1 - mean / peak, train_again(history, shorter, "with a shorter warm-up"))


def warming() -> History:
    """A warm-up of 2,000 steps, of which the run has 24."""
    rates = [1e-3 * (i + 1) / 2000 for i in range(24)]
    return example_history({"lr": rates}, {"optimizer.warmup_steps": 2000})


def learned_in_warm_up() -> History:
    """The same, while the reward rises."""
    rates = [1e-3 * (i + 1) / 2000 for i in range(24)]
    return example_history({"lr": rates, "reward/mean": rising()}, {"optimizer.warmup_steps": 2000})


CAUSE = Cause(
    title="the run ends in the warm-up of the learning rate",
    needs=("recipe", "lr"),
    judge=judge,
    found=(warming,),
    excluded=(learned_in_warm_up, lambda: example_history(recipe={"optimizer.warmup_steps": 4})),
)
