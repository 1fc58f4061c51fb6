"""The reward pays no answer, right or wrong.

Found: All groups are tied at a reward of 0 or less, and demonstrations earn nothing either.
Excluded: Something earned a reward: a rollout, an evaluation or a demonstration. If nearly all rollouts are
cut, their rewards do not tell.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import check_recipe
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import NEARLY_ALL, History
from truing.utils.format import with_count


def judge(history: History) -> Answer:
    """Return what earned a reward."""
    highest = max(row.metrics["reward/mean"] for row in history.rewarded)
    if history.pays:
        return Answer("ruled out", paid(history))
    if (cut := history.late("truncated/share")) >= NEARLY_ALL:
        return Answer("cannot tell", f"{cut:.0%} of rollouts are cut before their end")
    because = (
        f"the mean reward is at most {highest:.3g} in all of {with_count(len(history.rewarded), 'step')}"
    )
    if demonstrated := history.demonstrated:
        because += (
            f", and {with_count(len(demonstrated), 'demonstration')} earn {max(demonstrated):.3g} at most"
        )
        return Answer("found", because, 1.0, check_recipe(history))
    outcomes = "if a right answer earns nothing, the reward is broken; if it is paid, the tasks are too hard"
    return Answer("open", because, 1.0, check_recipe(history), outcomes)


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
    judge=judge,
    rules=("RWD006", "ADV004"),
    found=(dead,),
    excluded=(hard, example_log),
)
