"""The reward pays no answer, right or wrong.

Found: All groups are tied at a reward of 0 or less, and demonstrations earn nothing either.
Open: Nothing is known of demonstrations; or all rewards of a log are equal, at any level.
Excluded: Something earned a reward: a rollout, an evaluation or a demonstration. If nearly all rollouts are
cut, their rewards do not tell.
"""

from dataclasses import replace

from truing.analysis.intervals import REWARD_TOLERANCE
from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import check_recipe
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import NEARLY_ALL, History
from truing.utils.format import with_count

DEVIATIONS, EXTREMES = ("reward/std", "reward/any_std"), ("reward/min", "reward/max")

SAME = "every rollout earns the same reward"
"""The title where it pays each answer alike, as far as a log says."""


def judge(history: History) -> Answer:
    """Return what earned a reward."""
    highest, same = max(row.metrics["reward/mean"] for row in history.rewarded), _same(history)
    steps = with_count(len(history.rewarded), "step")
    if history.pays and same:
        outcomes = "if it earns less, the tasks are solved; if not, the reward does not depend on the answer"
        fix = Advice("grade a wrong answer with the reward function")
        return Answer(
            "open", f"the mean reward is {highest:.3g} in all of {steps}{same}", 1.0, fix, outcomes, SAME
        )
    if history.pays:
        return Answer("ruled out", paid(history))
    if (cut := history.late("truncated/share")) >= NEARLY_ALL:
        return Answer("cannot tell", f"{cut:.0%} of rollouts are cut before their end")
    because = f"the mean reward is at most {highest:.3g} in all of {steps}{same}"
    if demonstrated := history.demonstrated:
        because += (
            f", and {with_count(len(demonstrated), 'demonstration')} earn {max(demonstrated):.3g} at most"
        )
        return Answer("found", because, 1.0, check_recipe(history))
    outcomes = "if a right answer earns nothing, the reward is broken; if it is paid, the tasks are too hard"
    return Answer("open", because, 1.0, check_recipe(history), outcomes, SAME if same else "")


def _same(history: History) -> str:
    """Return that all rewards of a log are equal in each step and over them, as text; "" if some differ."""
    means = [row.metrics["reward/mean"] for row in history.rewarded]
    if history.run is not None or max(means) - min(means) > REWARD_TOLERANCE:
        return ""
    name = next((name for name in DEVIATIONS if history.has(name)), "")
    if name:
        said = f"; the deviation of rewards is 0 in all of them ({history.column(name)})"
        return "" if any(history.series(name)) else said
    low, high = (history.series(name) for name in EXTREMES)
    return (
        f"; the smallest reward is the largest in all of them ({high[-1]:.3g})" if low and low == high else ""
    )


def paid(history: History) -> str:
    """Return the largest rewards on record as text."""
    texts = [
        f"a mean reward of {max(row.metrics['reward/mean'] for row in history.rewarded):.3g} in some step"
    ]
    if evaluated := [x for each in history.evaluations for x in each.reward.values()]:
        texts.append(f"{max(evaluated):.3g} in an evaluation")
    if demonstrated := history.demonstrated:
        texts.append(f"{max(demonstrated):.3g} of a demonstration")
    return "the largest rewards: " + ", ".join(texts)


def dead() -> History:
    """Nothing is paid, not even a demonstration."""
    history = example_history({"reward/mean": 0.0, "reward/std": 0.0}, samples=())
    return replace(history, run=replace(history.facts, demonstrated={"words": [0.0, 0.0]}))


def hard() -> History:
    """No rollout is paid, but a demonstration is."""
    return replace(dead(), run=replace(dead().facts, demonstrated={"words": [1.0, 1.0]}))


CAUSE = Cause(
    title="the reward pays no answer",
    stages=("policy", "rft"),
    judge=judge,
    rules=("RWD006", "ADV004"),
    found=(
        dead,
        lambda: example_log({"reward/mean": -1.0, "reward/std": 0.0}),
        lambda: example_log(
            {"reward/mean": 0.5, "reward/min": 0.5, "reward/max": 0.5}, without=("reward/std",)
        ),
    ),
    excluded=(hard, example_log),
)
