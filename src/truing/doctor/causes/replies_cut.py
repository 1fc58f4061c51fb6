"""Replies of tools are cut: the policy does not see their end.

Found: Most rollouts have a cut reply, most characters of replies are lost, and these rollouts earn hardly
anything.
Open: Many rollouts have one, and earn less than the others; or all have one.
Excluded: Few have one, or they earn as much, or the policy gets better.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_sample, rising
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.types.message import Message
from truing.types.sample import SampleFacts

MANY, MOST = 0.3, 0.5
"""Of the rollouts that have a reply; of the characters of replies."""

HARDLY = 0.1
"""Of what a rollout can earn."""

AS_GOOD = 0.9
"""Of the mean reward of rollouts with whole replies."""


def judge(history: History) -> Answer | None:
    """Return how many rollouts have a cut reply, what is lost, and what they earn."""
    replies = {each: _replies(each) for each in rollouts_of(history) if _replies(each)}
    if not replies:
        return None  # no tool has answered
    cut = [each.reward for each, messages in replies.items() if any(map(_lost, messages))]
    whole = [each.reward for each, messages in replies.items() if not any(map(_lost, messages))]
    share, limit = len(cut) / len(replies), history.facts.recipe.episode.max_reply_chars
    because = f"{share:.0%} of rollouts with a reply have one that is cut"
    if share <= MANY:
        return Answer("ruled out", because)
    every = [message for messages in replies.values() for message in messages]
    lost, earned = _lost_share(every, limit), statistics.fmean(cut)
    because += f" (episode.max_reply_chars = {limit}): {lost:.0%} of the characters of replies are lost"
    because += f"; these rollouts earn {earned:.3g}"
    because += f", and those with whole replies {statistics.fmean(whole):.3g}" if whole else ""
    if history.outcome.learns or (whole and earned >= AS_GOOD * statistics.fmean(whole)):
        return Answer("ruled out", because)
    longest: dict[str, object] = {"episode.max_reply_chars": limit + max(map(_lost, every))}
    fix = train_again(history, longest, "with whole replies")
    poor = earned <= HARDLY * (sum(map(abs, history.facts.weights.values())) or 1.0)
    surely = share >= MOST and lost >= MOST and poor
    outcomes = "if the reward rises, what was cut was needed"
    return Answer("found" if surely else "open", because, share * lost, fix, outcomes)


def _replies(rollout: SampleFacts) -> list[Message]:
    """Return the replies of tools in a rollout."""
    return [message for message in rollout.messages if message["role"] == "tool"]


def _lost(message: Message) -> int:
    """Return the characters that a reply lost."""
    return message.get("lost_chars", 0)


def _lost_share(messages: Sequence[Message], limit: int) -> float:
    """Return the lost characters ÷ those that tools returned; a note follows the first ``limit`` of them."""
    lost = sum(map(_lost, messages))
    return lost / max(1, lost + sum(min(limit, len(message["content"])) for message in messages))


def _cut(lost: int, earns: float = 0.0, **metrics: list[float]) -> History:
    """Return rollouts with a reply each, of which 50 characters are left."""
    reply: Message = {"role": "tool", "content": "." * 50, **({"lost_chars": lost} if lost else {})}
    rows = [example_sample(i, messages=(reply,), reward=earns) for i in range(32)]
    history = example_history(metrics, {"episode.max_reply_chars": 50}, samples=rows)
    return replace(history, run=replace(history.facts, demonstrated={"words": [1.0, 1.0]}))


CAUSE = Cause(
    title="replies of tools are cut",
    needs=("recipe", "samples"),
    judge=judge,
    found=(lambda: _cut(150), lambda: _cut(150, 0.4)),
    excluded=(lambda: _cut(0), lambda: _cut(150, 0.4, **{"reward/mean": rising()})),
)
