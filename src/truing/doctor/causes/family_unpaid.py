"""One family of tasks earns nothing, while others are paid.

Found: All rollouts of a family have a reward of 0 or less, and its demonstrations too; or these are paid, so
that its tasks are too hard.
Excluded: Each family earns something, or none does.
"""

from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import check_recipe
from truing.doctor.causes.example import example_history, example_sample
from truing.doctor.causes.groups import family_rewards
from truing.doctor.causes.history import History
from truing.utils.format import with_count

MIN_ROLLOUTS = 16
"""Of a family, for a statement about it."""


def judge(history: History) -> Answer | None:
    """Return the mean reward of each family."""
    rewards = family_rewards(history)
    if len(rewards) < 2:
        return None
    means = ", ".join(f"{name} {sum(each) / len(each):.3g}" for name, each in rewards.items())
    unpaid = [
        name
        for name, each in rewards.items()
        if len(each) >= MIN_ROLLOUTS and max(each) <= 0 and _never_paid(history, name)
    ]
    if not unpaid or len(unpaid) == len(rewards):
        return Answer("ruled out", f"mean rewards by family: {means}")
    count = sum(len(rewards[name]) for name in unpaid)
    share, named = count / sum(map(len, rewards.values())), ", ".join(unpaid)
    title = f"no rollout of {named} is paid"
    because = (
        f"mean rewards by family: {means}; of the last {with_count(count, 'rollout')} of {named} none is"
    )
    demonstrated = [
        x for name in unpaid for x in (history.run.demonstrated.get(name, ()) if history.run else ())
    ]
    if not demonstrated:
        outcomes = (
            "if right answers earn nothing, the judge is broken; if they are paid, these tasks are too hard"
        )
        return Answer("open", because, share, check_recipe(history), outcomes, title)
    because += (
        f"; {with_count(len(demonstrated), 'demonstration')} of these earn up to {max(demonstrated):.3g}"
    )
    if max(demonstrated) > 0:
        easier = Advice("leave these tasks out, or train on their demonstrations first (a stage of sft)")
        return Answer("found", because, share, easier, title=f"{title}: these tasks are too hard")
    title += ", nor a demonstration: the judge is broken"
    return Answer("found", because, share, check_recipe(history), title=title)


def _never_paid(history: History, family: str) -> bool:
    """Return whether no step has a mean reward above 0 for a family."""
    name = f"family_reward/{family.replace('/', '.')}"
    return not any(row.metrics.get(name, 0.0) > 0 for row in history.steps)


def one_dead() -> History:
    """One family of two earns nothing, nor do its demonstrations."""
    rows = [example_sample(i, family="facts", reward=0.0) for i in range(32, 64)]
    history = example_history(samples=[*example_history().samples, *rows])
    return replace(history, run=replace(history.facts, demonstrated={"facts": [0.0], "words": [1.0]}))


def both_paid() -> History:
    """Two families that are paid."""
    rows = [example_sample(i, family="facts") for i in range(32, 64)]
    return example_history(samples=[*example_history().samples, *rows])


CAUSE = Cause(
    title="one family of tasks is not paid",
    needs=("samples",),
    stages=("policy", "rft"),
    judge=judge,
    rules=("ADV004",),
    found=(one_dead,),
    excluded=(both_paid,),
)
