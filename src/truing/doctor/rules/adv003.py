"""ADV003: Rollouts that all earned the same have an advantage.

What: All rewards of a group are equal, so that none is better than another, and still its tokens are
pulled.

Why it is silent: A mean of equal numbers differs from them by rounding, and a deviation of rounding is
divided by itself. The result is of the order of 1, and looks like any other advantage.

How it is measured: Groups that are on record as a whole, whose largest reward is the smallest, and the
largest advantage of their tokens. What rounding leaves behind a denominator of 1e-4 is a few thousandths:
that pulls at nothing, and is not told.

Healthy look-alikes: Rewards that differ by little: ADV007 speaks of those. A group of which a part only is
on record: the others may have earned something else. KL in the reward, a penalty for length, or an
advantage per turn: then equal rewards are not all that counts, and the rule is not asked.

Fix: Set advantages to 0 where the largest reward of a group is its smallest, before anything is divided;
compute mean and deviation in float64.

References: https://arxiv.org/abs/2402.03300, https://arxiv.org/abs/2503.14476
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, with_token_gradients
from truing.doctor.rule import Rule, is_grouped
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

NOTHING = 1e-2
"""An advantage that pulls at nothing: float32 over a denominator of 1e-4 leaves 0.003."""


class Measured(NamedTuple):
    """Groups of equal reward whose tokens have an advantage."""

    groups: int
    equal: int  # groups of equal reward that were looked at
    largest: float
    reward: float  # of the group with the largest
    where: Places
    whole: bool  # whether it is declared how many a group has


def measure(step: Step) -> Measured:
    """Whole groups of equal reward, and the largest advantage of each."""
    rewards: dict[str, dict[str, float]] = defaultdict(dict)
    for row in step.rows:
        if row.kept and not math.isnan(row.reward):
            rewards[row.group_id][row.rollout_id] = row.reward
    size = step.setup.group_size
    equal = {
        group: next(iter(each.values()))
        for group, each in rewards.items()
        if len(each) >= max(size or 2, 2) and max(each.values()) == min(each.values())
    }
    advantage_N = step.tokens["advantage"].abs().masked_fill(~step.tokens["policy_mask"], 0.0).nan_to_num()
    of_equal_N = torch.tensor([row.kept and row.group_id in equal for row in step.rows])[step.row_of_token]
    advantage_N = advantage_N.masked_fill(~of_equal_N, 0.0)
    largest = float(advantage_N.max()) if len(advantage_N) else 0.0
    where = places(step, (advantage_N == largest) & (advantage_N > 0))
    wrong = {step.rows[int(row)].group_id for row in step.row_of_token[advantage_N > NOTHING].unique()}
    reward = equal[step.rows[where.row].group_id] if where else math.nan
    return Measured(len(wrong), len(equal), largest, reward, where, size is not None)


def judge(found: Measured) -> Iterator[Claim]:
    """Equal rewards have no advantage, beyond what rounding leaves."""
    if found.groups:
        yield Claim(
            Verdict.PROVEN if found.whole else Verdict.SUSPECT,
            f"{found.groups} of {found.equal} groups of equal reward have advantages",
            got=f"up to {found.largest:.4g}, where all rewards are {found.reward:g}",
            expected="0",
            **found.where.claim_fields,
            specificity=2.2,
        )


def example() -> Step:
    """The deviation of rounding is divided by itself."""
    healthy = example_step(rewards=(0.1,) * 4 + (1.0, 0.0, 0.0, 1.0))
    sign_N = torch.where(healthy.row_of_token % 2 == 0, 0.5, -0.5)
    wrong_N = torch.where(healthy.row_of_token < 4, sign_N, healthy.tokens["advantage"])
    return with_token_gradients(
        changed_step(healthy, advantage=wrong_N.masked_fill(~healthy.tokens["policy_mask"], torch.nan))
    )


def equal() -> Step:
    """Groups of equal reward, and advantages of 0."""
    return example_step(rewards=(1.0,) * 4 + (0.1,) * 4)


RULE = Rule(
    code="ADV003",
    name="equal-rewards-with-advantage",
    kind="E",
    needs=("advantage", "policy_mask", "row.reward", "row.group_id", "setup.advantage"),
    taints=("policy",),
    applies=is_grouped,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(equal,),
)
