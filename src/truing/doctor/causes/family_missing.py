"""A family of tasks is hardly sampled.

Open: One has less than a tenth of the rollouts.
Excluded: Each has more.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.example import example_history, example_sample
from truing.doctor.causes.groups import family_rewards
from truing.doctor.causes.history import History

RARE = 0.1
"""Of the rollouts."""


def judge(history: History) -> Answer | None:
    """Return the share of each family."""
    count = {name: len(each) for name, each in family_rewards(history).items()}
    if len(count) < 2:
        return None
    total = sum(count.values())
    because = "of the last rollouts: " + ", ".join(
        f"{name} {number / total:.0%}" for name, number in count.items()
    )
    if min(count.values()) >= RARE * total:
        return Answer("ruled out", because)
    fix = Advice("give the environment more tasks of it, or a larger weight")
    return Answer(
        "open",
        because,
        1 / len(count) - min(count.values()) / total,
        fix,
        "if it is meant to be rare, this is no fault",
    )


def rare() -> History:
    """One family of two has one rollout of 33."""
    return example_history(samples=[*example_history().samples, example_sample(40, family="facts")])


def even() -> History:
    """Two families of the same size."""
    rows = [replace(each, family="facts") for each in example_history().samples[:16]]
    return example_history(samples=[*rows, *example_history().samples[16:]])


CAUSE = Cause(
    title="a family of tasks is hardly sampled",
    needs=("samples",),
    judge=judge,
    found=(rare,),
    excluded=(even,),
)
