"""Prompts are cut before the policy reads them.

Open: Many prompts have exactly the length of the limit, or are cut to it.
Excluded: Few are.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.history import History

MANY = 0.1
"""Of the rollouts."""

SHARE = "context/cut_share"


def judge(history: History) -> Answer | None:
    """Return the share of prompts that are cut."""
    share = history.late(SHARE)
    because = f"{share:.0%} of prompts are as long as the limit, or cut to it ({history.column(SHARE)})"
    if share <= MANY:
        return Answer("ruled out", because)
    key, changes = "episode.max_prompt_tokens", dict[str, object]()
    if history.run is not None and (limit := history.run.recipe.episode.max_prompt_tokens):
        because += f", with {key} = {limit}"
        changes = {key: 2 * limit}
    fix = train_again(history, changes, "with a higher limit of the prompt, or without longer prompts")
    outcomes = "if the reward rises, what was cut held the question"
    return Answer("open", because, share, fix, outcomes)


CAUSE = Cause(
    title="prompts are cut",
    needs=(SHARE,),
    applies=lambda history: history.has(SHARE),
    judge=judge,
    found=(lambda: example_log({SHARE: 0.8}),),
    excluded=(lambda: example_log({SHARE: 0.01}), lambda: example_history({SHARE: 0.0})),
)
