"""Answers are cut before they end, and earn less for it.

Found: Many rollouts are cut at a limit of tokens, turns or time, and earn less than whole ones; or nearly all
are cut, and nothing is paid.
Open: Many are cut, and what whole ones earn is unknown, as in a log.
Excluded: Few are cut, or cut ones earn as much.
"""

import statistics
from dataclasses import replace

from truing.doctor.causes import stop_banned, temperature_high
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_log, example_sample
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import History
from truing.types.status import Status

MANY = 0.3
"""Of the rollouts."""

NEARLY_ALL = 0.9
"""Of the rollouts."""

REPLIES = "episode.max_reply_chars"
"""What leaves more room in the context if it is lower."""

AS_GOOD = 0.9
"""Of the mean reward of whole rollouts."""


def judge(history: History) -> Answer:
    """Return the share that is cut, and what they earn beside the others."""
    share, (key, limit) = history.late("truncated/share"), _limit(history)
    because = f"{share:.0%} of rollouts are cut"
    if history.run is None and (turns := history.late("ended/turns")) > max(share, MANY):
        return _by_turns(history, turns)
    if history.run is not None:
        because += f" ({key} = {limit:g})"
    if share <= MANY:
        return Answer("ruled out", because)
    for first in (stop_banned.CAUSE, temperature_high.CAUSE) if history.run is not None else ():
        if (answer := first.answer(history)) and answer.state == "found":
            return Answer("cannot tell", f"not before this is mended: {answer.title}")
    rollouts = rollouts_of(history)
    cut = [each.reward for each in rollouts if each.status == Status.TRUNCATED]
    whole = [each.reward for each in rollouts if each.status != Status.TRUNCATED]
    other = limit // 2 if key == REPLIES else 2 * limit
    fix = train_again(history, {key: other}, "with a higher limit of tokens")
    outcomes = "if the reward rises, the limit was the cause; if answers grow to the new one, they do not end"
    if not cut:
        return Answer("open", because, share, fix, outcomes)
    short = statistics.fmean(cut)
    because += f", and earn {short:.3g}"
    if not whole:
        return Answer("found" if short <= 0 else "open", because, share, fix, outcomes)
    full = statistics.fmean(whole)
    because += f"; whole ones {full:.3g}"
    if max(short, full) <= 0:  # of these rewards none says what a higher limit would earn
        return Answer("found" if share >= NEARLY_ALL else "open", because, share, fix, outcomes)
    if short >= AS_GOOD * full:
        return Answer("ruled out", because)
    return Answer("found", because, share * (1 - max(0.0, short) / full), fix, outcomes)


def _by_turns(history: History, share: float) -> Answer:
    """Return the share of rollouts of a log that reach the limit of turns."""
    because = f"{share:.0%} of rollouts reach the limit of turns ({history.column('ended/turns')})"
    fix = train_again(history, {}, "with a higher limit of turns")
    outcomes = (
        "if the reward rises, the limit was the cause; if all turns are used again, rollouts do not end"
    )
    return Answer("open", because, share, fix, outcomes, "turns run out before a rollout ends")


def _limit(history: History) -> tuple[str, float]:
    """Return the limit that cuts most rollouts: its key, and what it is; nothing of a log."""
    if history.run is None:
        return "", 0
    recipe = history.run.recipe
    limits = {
        "length": ("sampling.max_new_tokens", recipe.sampling.max_new_tokens),
        "turns": ("episode.max_turns", recipe.episode.max_turns),
        "time": ("episode.time_limit", recipe.episode.time_limit),
        "context": (REPLIES, recipe.episode.max_reply_chars),
    }
    shares = {name: history.late(f"ended/{name}") for name in limits}
    return limits[max(shares, key=lambda name: shares[name] if shares[name] > 0 else 0.0)]


def cut() -> History:
    """Half of the rollouts are cut, and earn nothing."""
    rows = [
        example_sample(i, reward=float(i % 2), status=Status.DONE if i % 2 else Status.TRUNCATED)
        for i in range(32)
    ]
    return example_history({"truncated/share": 0.5}, samples=rows)


def cut_and_paid() -> History:
    """Half of the rollouts are cut, and earn as much as the others."""
    return replace(cut(), samples=[replace(each, reward=1.0) for each in cut().samples])


CAUSE = Cause(
    title="answers are cut",
    needs=("truncated/share",),
    stages=("policy", "rft"),
    judge=judge,
    rules=("LEN003",),
    found=(cut, lambda: example_log({"ended/turns": 0.9})),
    excluded=(cut_and_paid, example_log),
)
