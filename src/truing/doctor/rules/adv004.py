"""ADV004: Nearly all groups have equal rewards, and teach nothing.

What: Over five steps, every rollout has the same reward in four of five groups. The policy sampled tokens
for them and learns nothing from any.

Why it is silent: Loss, ratios and gradient norm come from the few remaining groups. They look as usual,
only noisier. The mean reward stays constant, at one end or the other.

How it is measured: The rule takes the share of groups with equal rewards in this step and the four before
it, and how many of those are all right and all wrong. The cost is the share of sampled tokens in such
groups. A log of scalars may have the first share alone, or a deviation of rewards, which is 0 only if all
groups have equal rewards. Then the share is a mean over a fifth of the log, and the rule checks whether
that many groups can be all right: no more than the mean reward ÷ the largest, if no reward is below 0.

Healthy look-alikes: Tasks that the policy has learned: all answers are right, and nothing is left to learn.
The finding names that reading; if a log lacks the share of groups that are all right, and as many may be, the
rule is not checked. A single step of a small batch. The rule does not apply to a method without
groups, whose critic learns from equal rewards too, nor where more than the reward counts: with penalties, a
KL in the reward, or an advantage per turn.

Fix: All wrong: grade a known right answer to see whether the verifier accepts it; if it does, use easier
tasks, larger groups, or demonstrations first. All right: use harder tasks. Otherwise leave such groups out
and sample others (in a recipe `gates.equal_groups`).

References: https://arxiv.org/abs/2503.14476, docs/control.md
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, compares_rewards_only, has_penalties
from truing.doctor.rules.len001 import Ends, ends
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin
from truing.utils.format import with_count

STEPS = 5

SHARES = ("group/zero_variance_share", "group/all_right_share", "group/all_wrong_share")

DEVIATION = "reward/any_std"
"""Of another trainer: the deviation of all rewards, or the mean of the groups' deviations. Either is 0
only if all groups have equal rewards."""


class Measured(NamedTuple):
    """Means over the last steps, and the cost of this one; NaN if unknown."""

    steps: int
    equal: float
    right: float
    wrong: float
    tokens: float  # share of this step's sampled tokens
    reward: Ends
    solvable: float  # share of groups that may be all right, by the mean reward; NaN if unknown


def measure(step: Step) -> Measured:
    """Shares of groups, by the metrics or else by the samples; share of tokens, by the samples."""
    groups = _groups(step)
    equal = {name for name, rewards in groups.items() if max(rewards) == min(rewards)}
    every = step.metrics_of_stage
    named = bool(groups) or SHARES[1] in step.metrics
    steps = STEPS if named else max(STEPS, len(every) // 5)
    logged = (_now(groups, equal) or _logged(step.metrics), *map(_logged, reversed(every[:-1])))
    known = list(islice(filter(None, logged), steps))  # of the last steps with a share
    columns = zip(*known, strict=True) if known else [(0.0,)] * 3
    equal_share, right, wrong = (math.fsum(column) / len(column) for column in columns)
    rewards = [numbers.get("reward/mean", math.nan) for numbers in every]
    return Measured(
        len(known),
        equal_share,
        right,
        wrong,
        _cost(step, equal),
        ends(rewards),
        _solvable(rewards, steps),
    )


def _solvable(rewards: Sequence[float], steps: int) -> float:
    """The mean reward of the last steps ÷ the largest of all, which is 1 if all lie in [0, 1]."""
    known = [reward for reward in rewards if math.isfinite(reward)]
    low, high = min(known, default=math.nan), max(known, default=math.nan)
    floor, top = min(0.0, low), 1.0 if low >= 0 and high <= 1 else high
    last = known[-steps:]
    return (math.fsum(last) / len(last) - floor) / (top - floor) if last and top > floor else math.nan


def _cost(step: Step, equal: set[str]) -> float:
    """Return the share of sampled tokens in groups of equal reward; NaN without tokens."""
    if "origin" in step.tokens:
        sampled_N = step.tokens["origin"] == Origin.SAMPLED
    elif "policy_mask" in step.tokens:
        sampled_N = step.tokens["policy_mask"]
    else:
        return math.nan
    of_equal_N = torch.tensor([row.group_id in equal for row in step.samples])[step.sample_of_token]
    return float((sampled_N & of_equal_N).sum() / sampled_N.sum().clamp(min=1))


def _groups(step: Step) -> dict[str, list[float]]:
    """Rewards by group, of groups with two or more."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for row in step.samples:
        if row.group_id and not math.isnan(row.reward):
            groups[row.group_id][row.rollout_id] = row.reward
    return {name: list(each.values()) for name, each in groups.items() if len(each) > 1}


def _now(groups: Mapping[str, list[float]], equal: set[str]) -> tuple[float, ...]:
    if not groups:
        return ()
    firsts = [groups[name][0] for name in equal]
    counts = len(equal), sum(r >= 1 for r in firsts), sum(r <= 0 for r in firsts)
    return tuple(count / len(groups) for count in counts)


def _logged(numbers: Mapping[str, float]) -> tuple[float, ...]:
    if math.isfinite(numbers.get(SHARES[0], math.nan)):
        return tuple(numbers.get(name, math.nan) for name in SHARES)
    if math.isfinite(deviation := numbers.get(DEVIATION, math.nan)):
        return float(deviation == 0), math.nan, math.nan
    return ()


def judge(step: Step) -> Iterator[Claim]:
    """Claim four of five groups, over five steps."""
    measured = measure(step)
    named, reward = not math.isnan(measured.right), measured.reward
    if measured.steps < STEPS:
        yield Claim(Verdict.NOT_CHECKED, f"{STEPS} steps with the share of groups of equal reward")
    elif measured.equal >= 0.8 and not named and _may_be_solved(measured):
        yield Claim(Verdict.NOT_CHECKED, "the share of groups that are all right")
    elif measured.equal >= 0.8:
        solved = named and measured.right >= 0.9 * measured.equal
        detail = f"all right {measured.right:.0%}, all wrong {measured.wrong:.0%}"
        if not named:
            detail = f"mean reward {reward.last:.3g}, at the start {reward.first:.3g}"
        lost = f"; {measured.tokens:.0%} of this step's tokens teach nothing"
        yield Claim(
            Verdict.CANNOT_TELL if solved else Verdict.SUSPECT,
            f"{measured.equal:.0%} of the groups of the last {with_count(measured.steps, 'step')} have"
            " equal rewards:"
            + (
                " the policy has learned the tasks, or they are too easy"
                if solved
                else " the policy learns nothing from them"
            ),
            got=detail + ("" if math.isnan(measured.tokens) else lost),
            expected="groups in which some rollouts are better than others",
            remedy="evaluate on held-out tasks: if the policy solves those too, stop, or use harder ones"
            if solved
            else "",
        )


def _may_be_solved(measured: Measured) -> bool:
    """Return whether all such groups may be right, for a log without that share."""
    unknown = math.isnan(measured.solvable)
    return unknown or measured.reward.rose or measured.solvable >= 0.9 * measured.equal


def example() -> Step:
    """No answer is right for five steps."""
    shares = {"group/zero_variance_share": 1.0, "group/all_right_share": 0.0, "group/all_wrong_share": 1.0}
    return changed_step(
        example_step(rewards=(0.0,) * 8), past=[past_step(step, metrics=shares) for step in range(4)]
    )


def one_step() -> Step:
    """A single step in which all groups have equal rewards."""
    return example_step(rewards=(0.0,) * 8)


def solved() -> Step:
    """A log of a run that is good from the start: most groups have equal rewards, and may be right."""
    numbers = {"group/zero_variance_share": 0.88, "reward/mean": 0.92}
    bare = changed_step(example_step(), samples={i: {"group_id": ""} for i in range(8)}, setup={"algo": None})
    return changed_step(
        bare, past=[past_step(number, metrics=numbers) for number in range(20)], metrics=numbers
    )


def penalised() -> Step:
    """Penalties for long answers tell answers of equal reward apart."""
    return changed_step(example(), setup={"overlong_tokens": 2, "overlong_penalty": 1.0})


def _needs_signal(step: Step) -> bool:
    """Return whether groups of equal reward teach nothing; samples alone do not show if a critic learns."""
    if step.setup.algo is None:
        return SHARES[0] in step.metrics or not step.samples
    return step.setup.algo in ("grpo", "rloo")


RULE = Rule(
    code="ADV004",
    name="groups-without-signal",
    kind="S",
    needs=(
        "sample.reward | metrics.group/zero_variance_share | metrics.reward/any_std",
        "sample.group_id | metrics.group/zero_variance_share | metrics.reward/any_std",
    ),
    taints=(),
    applies=lambda step: _needs_signal(step) and compares_rewards_only(step) and not has_penalties(step),
    judge=judge,
    example=example,
    lookalikes=(one_step, penalised),
    judges_trend=True,
)
