"""ADV001: Advantages are not what the rewards of their groups come to.

What: The advantage of a rollout, computed once more by the declared formula from its reward and those of its
group, is not the advantage that its tokens were trained with.

Why it is silent: Any numbers of about the right size will train something. Rewards of other groups, a
shuffled order, a missing baseline or another denominator change which answers are reinforced, and no scalar
shows it.

How it is measured: From the rewards and group ids of the record, each rollout once however many sequences
it was cut into, by a second implementation in Python's floats; every trained token is compared.

Healthy look-alikes: Advantages of 0 throughout a group of equal rewards. A group that lost a member to an
error: its baseline is of those that remain. What a KL in the reward costs, and declared penalties for cut
or long attempts, are taken off the rewards; where each turn is judged, each has an advantage of its own.

Fix: Group rewards by the group's id and not by their position; compute mean and deviation over rollouts,
not over sequences or tokens, before anything is sharded or shuffled.

References: https://arxiv.org/abs/2402.03300, https://arxiv.org/abs/2503.20783,
https://arxiv.org/abs/2402.14740
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.oracle.advantages import expected_group_advantages
from truing.doctor.rule import Rule
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

ROUNDING = 1e-4
"""Advantages are of the order of 1, and float32 keeps 1e-7 of them."""


class Measured(NamedTuple):
    """Tokens with another advantage, and the worst of them."""

    wrong: Places
    got: float
    expected: float
    opposite: float  # share of wrong rows whose sign is the other one


def measure(step: Step) -> Measured:
    """Recompute, and compare every token under the policy loss."""
    expected_N = expected_group_advantages(step)
    got_N = step.tokens["advantage"].double()
    looked_at_N = step.tokens["policy_mask"] & ~expected_N.isnan()
    differs_N = looked_at_N & ~((got_N - expected_N).abs() <= ROUNDING)
    found = places(step, differs_N, int(looked_at_N.sum()))
    token = step.starts[found.row] + found.start if found else 0
    opposite_N = differs_N & (got_N * expected_N < 0)
    share = float(opposite_N.sum() / differs_N.sum()) if found else 0.0
    return Measured(found, float(got_N[token]), float(expected_N[token]), share)


def judge(found: Measured) -> Iterator[Claim]:
    """The formula has one value."""
    if found.wrong:
        turned = f", {found.opposite:.0%} of them with the other sign" if found.opposite else ""
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(found.wrong.tokens, 'token')} of {with_count(found.wrong.rows, 'row')} with another"
            f" advantage than their rewards come to{turned}",
            got=f"{found.got:.5g} at row {found.wrong.row}",
            expected=f"{found.expected:.5g}",
            **found.wrong.claim_fields,
            specificity=2,
        )


def example() -> Step:
    """Rewards were shuffled on their way to the advantages."""
    healthy = example_step()
    shuffled = healthy.tokens["advantage"].flip(0).nan_to_num(0.5)
    return changed_step(healthy, advantage=shuffled.masked_fill(~healthy.tokens["policy_mask"], torch.nan))


def equal() -> Step:
    """Groups of equal reward have advantages of 0."""
    return example_step(rewards=(1.0,) * 4 + (0.1,) * 4)


RULE = Rule(
    code="ADV001",
    name="advantage-recomputed",
    kind="E",
    needs=(
        "policy_mask",
        "advantage",
        "row.reward",
        "row.group_id",
        "setup.advantage",
        "setup.advantage_eps",
    ),
    taints=("policy",),
    applies=lambda step: (
        step.setup.advantage in ("group", "batch", "none", "loo", None)
        and step.setup.algo in ("grpo", "rloo", None)
        # rows of updates that were held back are not on record
        and not step.numbers.get("gate/held_back")
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(equal,),
)
