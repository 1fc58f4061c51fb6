"""RWD006: Every attempt has the same reward.

What: For three updates in a row, every reward was the same number.

Why it is silent: With equal rewards every advantage is 0, and so are loss and gradient. The run continues,
and learns nothing. Tasks that are too hard, tasks that are too easy and a broken grader look alike.

How it is measured: The rewards of this update, and mean and deviation of the rewards in the two before it.
For a log of scalars, mean and deviation alone.

Healthy look-alikes: A single update without signal. Groups of equal reward, some right and some wrong: then
the grader distinguishes them.

Fix: Grade the demonstrations: if they do not earn more than the policy's answers, the grader is broken. If
they do, the tasks are too hard or too easy for this policy: choose others, or fine-tune on some
demonstrations first.

References: https://arxiv.org/abs/2503.14476, docs/check.md
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

STEPS = 3
"""Updates in a row."""

ROUNDING = 1e-6
"""Reward units: rounding in the mean of equal numbers."""


class Measured(NamedTuple):
    """The spread of rewards in the last updates of the stage."""

    means: tuple[float, ...]
    spreads: tuple[float, ...]  # NaN if unknown
    several: bool  # whether the update has more than one attempt
    unscored: int  # rows without a reward beside them


def measure(step: Step) -> Measured:
    """Return this update's rewards, or their metrics, and the metrics of the updates before."""
    rewards = [row.reward for row in step.rows if math.isfinite(row.reward)]
    earlier = [past.numbers for past in step.past_of_stage[1 - STEPS :]]
    spread = max(rewards) - min(rewards) if rewards else step.numbers.get("reward/std", math.nan)
    mean = math.fsum(rewards) / len(rewards) if rewards else step.numbers.get("reward/mean", math.nan)
    attempts = len({row.rollout_id for row in step.rows if math.isfinite(row.reward)})
    return Measured(
        (*(numbers.get("reward/mean", math.nan) for numbers in earlier), mean),
        (*(numbers.get("reward/std", math.nan) for numbers in earlier), spread),
        attempts > 1
        or (not rewards and "reward/std" in step.numbers),  # a deviation implies several attempts
        sum(math.isnan(row.reward) for row in step.rows) if rewards else 0,
    )


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim equal rewards in several updates."""
    alike = all(spread <= ROUNDING for spread in measured.spreads)
    same = max(measured.means) - min(measured.means) <= ROUNDING
    if len(measured.means) == STEPS and measured.several and alike and same:
        guess = (
            "all wrong"
            if measured.means[-1] <= 0
            else "all right"
            if measured.means[-1] >= 1
            else "all alike"
        )
        yield Claim(
            Verdict.CANNOT_TELL,
            f"every reward of the last {STEPS} updates is {measured.means[-1]:.4g}: the tasks are too hard or"
            " too easy, or the grader is broken",
            got=guess + f"; {measured.unscored} rows of this update have no reward" * (measured.unscored > 0),
            expected="rewards that differ",
            remedy=_remedy(measured.means[-1]),
        )


def _remedy(reward: float) -> str:
    """Return how to tell a grader that is broken from tasks that are too hard or too easy."""
    if reward >= 1:
        return (
            "`truing check RECIPE` grades empty and exchanged answers, which must earn less than this; then"
            " choose harder tasks"
        )
    return "`truing check RECIPE` grades the demonstrations: they must earn more than this"


def _alike(reward: float, spreads: tuple[float, float]) -> Step:
    past = [past_step(i, reward_mean=reward, reward_std=spread) for i, spread in enumerate(spreads)]
    return changed_step(example_step(rewards=(reward,) * 8), past=past)


def example() -> Step:
    """No attempt has earned a reward yet."""
    return _alike(0.0, (0.0, 0.0))


def once() -> Step:
    """One update has no signal."""
    return _alike(0.0, (0.3, 0.2))


RULE = Rule(
    code="RWD006",
    name="every-reward-equal",
    kind="S",
    needs=("row.reward | numbers.reward/std",),
    taints=("rewards",),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(once,),
)
