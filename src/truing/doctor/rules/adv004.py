"""ADV004: Nearly all groups earned the same throughout, and teach nothing.

What: In four of five groups, over five steps, every attempt earned the same. Tokens were drawn for them,
and nothing is learned from any.

Why it is silent: Loss, ratios and the norm of the gradient are computed from the few groups that are left,
and look as they always do, only noisier. The mean reward stands still, at one end or the other.

How it is measured: The share of groups whose rewards are all equal, in this step and the four before it,
and how many of those are all right, and all wrong. The cost is the share of sampled tokens that lie in such
groups. A log of scalars may have the first share alone, or a deviation of rewards, which is 0 only where all
groups are of equal reward. Then the share is a mean over a fifth of the log, and it is asked whether that
many groups could be all right: no more than the mean reward ÷ the largest, where none is below 0.

Healthy look-alikes: Tasks that the policy has learned: all is right, and there is nothing left to do. That
fits health, and is told as such. A single step of a small batch. A method without groups, whose critic
learns from equal rewards too: then the rule is not asked.

Fix: All wrong: grade a known right answer to see whether the verifier ever says yes; if it does, take
easier tasks, larger groups, or demonstrations first. All right: take harder tasks. Else leave such groups
out and draw others (`gates.equal_groups`).

References: https://arxiv.org/abs/2503.14476, docs/control.md
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.len001 import Ends, ends, history
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin
from truing.utils.format import with_count

STEPS = 5

SHARES = ("group/zero_variance_share", "group/all_right_share", "group/all_wrong_share")

DEVIATION = "reward/any_std"
"""Of another trainer: of all rewards, or the mean of the groups'. 0 is all groups alike in either sense."""


class Measured(NamedTuple):
    """Means over the last steps, and what this one cost; NaN where it is not known."""

    steps: int
    equal: float
    right: float
    wrong: float
    tokens: float  # share of this step's sampled tokens
    reward: Ends
    solvable: float  # share of groups that may be all right, by the mean reward; NaN where nobody tells it


def measure(step: Step) -> Measured:
    """Shares of groups, by the metrics or else by the rows; share of tokens, by the rows."""
    groups = _groups(step)
    equal = {name for name, rewards in groups.items() if max(rewards) == min(rewards)}
    every = history(step)
    named = bool(groups) or SHARES[1] in step.numbers
    steps = STEPS if named else max(STEPS, len(every) // 5)
    known = [s for s in [*map(_told, every[-steps:-1]), _now(groups, equal) or _told(step.numbers)] if s]
    means = [math.fsum(column) / len(known) for column in zip(*known, strict=True)] if known else [0.0] * 3
    rewards = [numbers.get("reward/mean", math.nan) for numbers in every]
    return Measured(len(known), *means, _cost(step, equal), ends(rewards), _solvable(rewards, steps))


def _solvable(rewards: Sequence[float], steps: int) -> float:
    """The mean reward of the last steps ÷ the largest of all, which is 1 where all lie in [0, 1]."""
    known = [reward for reward in rewards if math.isfinite(reward)]
    low, high = min(known, default=math.nan), max(known, default=math.nan)
    floor, top = min(0.0, low), 1.0 if low >= 0 and high <= 1 else high
    last = known[-steps:]
    return (math.fsum(last) / len(last) - floor) / (top - floor) if last and top > floor else math.nan


def _cost(step: Step, equal: set[str]) -> float:
    """The share of sampled tokens that lie in groups of equal reward; NaN without tokens."""
    if "origin" in step.tokens:
        sampled_N = step.tokens["origin"] == Origin.SAMPLED
    elif "policy_mask" in step.tokens:
        sampled_N = step.tokens["policy_mask"]
    else:
        return math.nan
    of_equal_N = torch.tensor([row.group_id in equal for row in step.rows])[step.row_of_token]
    return float((sampled_N & of_equal_N).sum() / sampled_N.sum().clamp(min=1))


def _groups(step: Step) -> dict[str, list[float]]:
    """Rewards by group, of groups with two or more."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for row in step.rows:
        if row.group_id and not math.isnan(row.reward):
            groups[row.group_id][row.rollout_id] = row.reward
    return {name: list(each.values()) for name, each in groups.items() if len(each) > 1}


def _now(groups: Mapping[str, list[float]], equal: set[str]) -> tuple[float, ...]:
    if not groups:
        return ()
    firsts = [groups[name][0] for name in equal]
    counts = len(equal), sum(r >= 1 for r in firsts), sum(r <= 0 for r in firsts)
    return tuple(count / len(groups) for count in counts)


def _told(numbers: Mapping[str, float]) -> tuple[float, ...]:
    if SHARES[0] in numbers:
        return tuple(numbers.get(name, math.nan) for name in SHARES)
    if DEVIATION in numbers:
        return float(numbers[DEVIATION] == 0), math.nan, math.nan
    return ()


def judge(found: Measured) -> Iterator[Claim]:
    """Four of five groups, over five steps."""
    if found.steps >= STEPS and found.equal >= 0.8:
        named, reward = not math.isnan(found.right), found.reward
        solved = found.right >= 0.9 * found.equal if named else _may_be_solved(found)
        told = f"all right {found.right:.0%}, all wrong {found.wrong:.0%}"
        if not named:
            told = f"mean reward {reward.last:.3g}, at first {reward.first:.3g}"
        lost = f"; {found.tokens:.0%} of this step's tokens were drawn for nothing"
        yield Claim(
            Verdict.CANNOT_TELL if solved else Verdict.SUSPECT,
            f"{found.equal:.0%} of the groups of the last {with_count(found.steps, 'step')} are of equal reward:"
            + (" the tasks are learned, or too easy" if solved else " nothing is learned from them"),
            got=told + ("" if math.isnan(found.tokens) else lost),
            expected="groups in which some attempts are better than others",
            remedy="evaluate on tasks that were not trained on: where those are solved too, stop, or take"
            " harder ones"
            if solved
            else "",
        )


def _may_be_solved(found: Measured) -> bool:
    """Whether such groups may all be right, of a log that does not say which are."""
    unknown = math.isnan(found.solvable)
    return unknown or found.reward.rose or found.solvable >= 0.9 * found.equal


def example() -> Step:
    """Nothing was right for five steps."""
    shares = {"group_zero_variance_share": 1.0, "group_all_right_share": 0.0, "group_all_wrong_share": 1.0}
    return changed_step(
        example_step(rewards=(0.0,) * 8), past=[past_step(step, **shares) for step in range(4)]
    )


def one_step() -> Step:
    """A single step in which all groups are of equal reward."""
    return example_step(rewards=(0.0,) * 8)


def solved() -> Step:
    """A log of a run that was good from the start: most groups are of equal reward, and may be right."""
    told = {"group_zero_variance_share": 0.88, "reward_mean": 0.92}
    numbers = {"group/zero_variance_share": 0.88, "reward/mean": 0.92}
    bare = changed_step(example_step(), rows={i: {"group_id": ""} for i in range(8)}, setup={"algo": None})
    return changed_step(bare, past=[past_step(number, **told) for number in range(20)], numbers=numbers)


RULE = Rule(
    code="ADV004",
    name="groups-without-signal",
    kind="S",
    needs=(
        "row.reward | numbers.group/zero_variance_share | numbers.reward/any_std",
        "row.group_id | numbers.group/zero_variance_share | numbers.reward/any_std",
    ),
    taints=(),
    applies=lambda step: (
        step.setup.algo in ("grpo", "rloo")
        # rows alone do not tell whether a critic learns from groups of equal reward too
        or (step.setup.algo is None and (SHARES[0] in step.numbers or not step.rows))
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(one_step,),
    judges_trend=True,
)
