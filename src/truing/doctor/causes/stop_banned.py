"""The stop is banned for longer than answers are.

Found: Most turns end as soon as the stop is allowed.
Open: Some do, or turns run to the limit.
Excluded: Turns are longer than that by themselves.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_sample
from truing.doctor.causes.history import History
from truing.types.status import Status

MOST, FEW = 0.5, 0.05
"""Of the turns."""


def judge(history: History) -> Answer | None:
    """Return how many turns end right after the stop is allowed."""
    banned = history.facts.recipe.sampling.min_new_tokens
    lengths = [turn.end - turn.start for each in history.samples for turn in each.turns]
    if not banned or not lengths:
        return None
    at_once = sum(length <= banned + 1 for length in lengths) / len(lengths)
    cut = sum(each.status == Status.TRUNCATED for each in history.samples) / len(history.samples)
    because = f"sampling.min_new_tokens = {banned}: {at_once:.0%} of turns end as soon as they may"
    because += f", {cut:.0%} of rollouts are cut"
    if at_once < FEW and cut < MOST:
        return Answer("ruled out", because)
    state = "found" if at_once + cut >= MOST else "open"
    outcomes = "if the reward rises, answers were filled up to the minimum"
    fix = train_again(history, {"sampling.min_new_tokens": 0}, "without a minimum of tokens")
    return Answer(state, because, min(1.0, at_once + cut), fix, outcomes)


def filled() -> History:
    """Each answer ends at the minimum."""
    rows = [example_sample(i, tokens=16) for i in range(32)]
    return example_history(recipe={"sampling.min_new_tokens": 15}, samples=rows)


def long_anyway() -> History:
    """Answers of thirty tokens, where fifteen are the minimum."""
    rows = [example_sample(i, tokens=30) for i in range(32)]
    return example_history(recipe={"sampling.min_new_tokens": 15}, samples=rows)


CAUSE = Cause(
    title="the stop is banned for too long",
    needs=("recipe", "samples"),
    stages=("policy", "rft"),
    judge=judge,
    found=(filled,),
    excluded=(long_anyway,),
)
