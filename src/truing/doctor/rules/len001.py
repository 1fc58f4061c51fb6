"""LEN001: Rollouts have collapsed in length.

What: Over the last five steps rollouts have less than a third of the tokens that they had over the first
three of the stage, and the reward has not risen.

Why it is silent: Short answers are fast and cheap. Every number per token looks fine, since few tokens are
left to differ.

How it is measured: Mean tokens of a rollout, all its samples together, over the stage's first three
steps and its last five, which do not overlap. The same for the mean reward. The reward has risen if the
rise is three standard errors of such a difference, or three deviations of single steps above the lowest
of the first three. The deviation is that of neighbouring steps.

Healthy look-alikes: A learner that becomes brief earns more for it. The rise may lie within the first
records of a log with one record for every ten steps. If nearly all groups are all right already, the
reward stays as high as it was. A template that re-renders earlier turns cuts rollouts into shorter samples:
the rule counts rollouts, not samples. Another stage has a baseline of its own.

Fix: Read a few of the short answers. If they are empty, see LEN004. If they give up early, compare the cost
of a wrong answer with that of a long one: penalties for length, and losses that divide by it.

References: https://arxiv.org/abs/2503.20783, https://arxiv.org/abs/2503.14476
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.levels import noise_std
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

FIRST, LAST = 3, 5
"""Steps in the mean at the start of a stage, and at its end."""

THIRD = 1 / 3
"""Of the length at the start."""

MOSTLY = 0.5
"""Of all groups: then the reward can hardly rise."""


class Ends(NamedTuple):
    """The mean of a number at the start of a stage and at its end; NaN if unknown."""

    first: float
    last: float
    lowest: float  # of the first window
    spread: float  # deviation of single steps about their level, from differences of neighbours

    @property
    def rose(self) -> bool:
        """Return whether it rose significantly: since the first window, or since its lowest."""
        error = self.spread * math.sqrt(1 / FIRST + 1 / LAST)
        return self.last - self.first > 3 * error or self.last - self.lowest > 3 * self.spread


def ends(values: Iterable[float]) -> Ends:
    """Return the first and last window of the known values; NaN if they overlap."""
    known = [value for value in values if math.isfinite(value)]
    if len(known) < FIRST + LAST:
        return Ends(math.nan, math.nan, math.nan, math.nan)
    first, last = (fmean(window) for window in (known[:FIRST], known[-LAST:]))
    return Ends(first, last, min(known[:FIRST]), noise_std(known))


def too_few(name: str) -> Claim:
    """Return that a number has too few values for windows at both ends of the stage."""
    return Claim(Verdict.NOT_CHECKED, f"{FIRST + LAST} steps with {name}")


def right_by_now(metrics: Sequence[Mapping[str, float]]) -> float:
    """Return the share of groups that are all right, over the last window; 0 if unknown.

    A log may have rewards alone. If all lie in [0, 1], 2 × mean − 1 of the rollouts earn half or more.
    """
    last = metrics[-LAST:]
    rewards = [numbers.get("reward/mean", math.nan) for numbers in metrics]
    if not any("group/all_right_share" in numbers for numbers in last):
        bounded = all(0 <= reward <= 1 for reward in rewards)  # false for NaN
        return max(0.0, 2 * fmean(rewards[-LAST:]) - 1) if bounded else 0.0
    return fmean(numbers.get("group/all_right_share", 0.0) for numbers in last)


def _tokens(numbers: Mapping[str, float]) -> float:
    """Return the mean tokens of a rollout: of a sample, times the samples of a rollout."""
    return numbers.get("length/mean", math.nan) * (1 + numbers.get("turns/restarts_mean", 0.0))


def judge(step: Step) -> Iterator[Claim]:
    """Claim short answers at the end of the stage so far without a higher reward."""
    metrics, reward = step.metrics_of_stage, ends(step.known("reward/mean").values())
    length = ends(map(_tokens, metrics))
    if math.isnan(length.last):
        yield too_few("the mean length of answers")
    if not length.last < THIRD * length.first or reward.rose or right_by_now(metrics) >= MOSTLY:
        return
    known = not math.isnan(reward.last)
    yield Claim(
        Verdict.SUSPECT if known else Verdict.CANNOT_TELL,
        f"rollouts have {length.last:.3g} tokens over the last {LAST} steps, {length.first:.3g} over the"
        f" first {FIRST} of the stage",
        got=f"mean reward {reward.last:.3g}, at the start {reward.first:.3g}" if known else "no known reward",
        expected="a reward that rises as answers get shorter",
        remedy=""
        if known
        else "record the mean reward of each step: brief answers are fine if the reward rises",
    )


def _collapsed(reward: float, also: Mapping[str, float] = {}) -> Step:
    lengths = (90.0, 96.0, 87.0, 70.0, 30.0, 14.0, 9.0, 8.0, 8.0)
    rewards = (0.30, 0.34, 0.29, 0.3, 0.3, *(reward + x for x in (0.01, -0.01, 0.0, 0.01)))
    past = [
        past_step(i, length_mean=length, reward_mean=paid, metrics=also)
        for i, (length, paid) in enumerate(zip(lengths, rewards, strict=True))
    ]
    now = {"length/mean": 8.0, "reward/mean": reward, **also}
    return changed_step(example_step(), past=past, metrics=now)


def example() -> Step:
    """From ninety tokens to eight, at the same reward."""
    return _collapsed(0.31)


def learned_at_once() -> Step:
    """The reward rises from 0.15 to 0.95 within the first records of a log."""
    rewards = (0.15, 0.9, 0.94, 0.96, 0.95, 0.94, 0.96, 0.95, 0.95, 0.95)
    lengths = (90.0, 96.0, 87.0, 40.0, 20.0, 14.0, 9.0, 8.0, 8.0, 8.0)
    records = [
        past_step(i, length_mean=length, reward_mean=paid)
        for i, (length, paid) in enumerate(zip(lengths, rewards, strict=True))
    ]
    return changed_step(example_step(), past=records[:-1], metrics={"length/mean": 8.0, "reward/mean": 0.95})


def brief_and_right() -> Step:
    """Shorter answers, and better ones."""
    return _collapsed(0.9)


def right_from_the_start() -> Step:
    """Nearly everything is right already, and long answers cost something."""
    return _collapsed(0.3, {"group/all_right_share": 0.9})


RULE = Rule(
    code="LEN001",
    name="length-collapse",
    kind="S",
    needs=("metrics.length/mean",),
    taints=("policy",),
    applies=is_sampled,
    judges_trend=True,
    judge=judge,
    example=example,
    lookalikes=(brief_and_right, learned_at_once, right_from_the_start),
)
