"""ADV002: An advantage is larger than its group allows.

What: An advantage divided by the deviation of its group is beyond (G − 1)/√G, the largest value that G
rewards can give. The denominator is wrong, or comes from another group.

Why it is silent: Advantages are expected to be of the order of 1, and 3 looks like a good answer among bad
ones. A denominator from another group, or one that is nearly 0, gives some samples several times their
weight.

How it is measured: Among G numbers none is farther from their mean than (G − 1)/√G sample deviations. G is
the number of recorded rollouts of the group, or the declared number if that is larger, so the bound is
never too narrow. For a division by the population deviation the bound is √(G − 1). Beyond that, an
advantage is wrong by any definition.

Healthy look-alikes: An advantage at the bound itself: one right answer among wrong ones has it. The rule
does not apply to advantages that are divided by the deviation of all rewards, or are not divided: those
have no such bound.

Fix: Compute mean and deviation over the rollouts of the same group, and test the order with rewards that
tell samples apart.

References: https://arxiv.org/abs/2402.03300, https://arxiv.org/abs/2503.20783
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.rule import Rule
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-4
"""Of the bound: float32 keeps 1e-7 of an advantage."""


class Measured(NamedTuple):
    """The advantage that is farthest beyond its bound."""

    largest: float
    bound: float  # by the sample deviation
    wide: float  # by the population's
    group: str
    size: int
    where: Places  # of that sample
    ours: bool


def measure(step: Step) -> Measured:
    """The largest advantage of each sample, by the size of its group."""
    sizes: dict[str, set[str]] = defaultdict(set)
    for row in step.samples:
        if not math.isnan(row.reward):
            sizes[row.group_id].add(row.rollout_id)
    advantage_N = step.tokens["advantage"].abs().masked_fill(~step.tokens["policy_mask"], 0.0).nan_to_num()
    worst, at = (0.0, 1.0, 1.0, "", 0), -1
    for index, row, part in step.slices():
        size = max(len(sizes[row.group_id]), step.setup.group_size or 0)
        if not step.kept[index] or size < 2 or part.start == part.stop:
            continue
        largest, bound = float(advantage_N[part].max()), (size - 1) / math.sqrt(size)
        if largest / bound > worst[0] / worst[1]:
            worst, at = (largest, bound, math.sqrt(size - 1), row.group_id, size), index
    where_N = (step.sample_of_token == at) & (advantage_N == worst[0]) & (advantage_N > 0)
    return Measured(*worst, places(step, where_N), step.setup.trainer == "truing")


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim proof beyond the wider bound; between the two bounds the definition decides."""
    beyond = measured.largest > measured.bound * (1 + ROUNDING)
    if beyond:
        sure = measured.ours or measured.largest > measured.wide * (1 + ROUNDING)
        note = "" if sure else "; within √(G − 1), the bound for the population deviation"
        yield Claim(
            Verdict.PROVEN if sure else Verdict.SUSPECT,
            f"an advantage of {measured.largest:.4g} in group {measured.group} of {measured.size}{note}",
            got=f"{measured.largest:.4g} at sample {measured.where.row}",
            expected=f"at most (G − 1)/√G = {measured.bound:.4g}",
            **measured.where.claim_fields,
            specificity=1.5,
        )


def example() -> Step:
    """Advantages are divided by the deviation twice."""
    healthy = example_step(rewards=(0.1, 0.0, 0.0, 0.0) * 2, setup={"trainer": "trl", "advantage_eps": None})
    return with_token_gradients(changed_step(healthy, advantage=healthy.tokens["advantage"] / 0.05))


def one_right() -> Step:
    """One right answer among wrong ones has the largest possible advantage."""
    return example_step(rewards=(1.0, 0.0, 0.0, 0.0) * 2, setup={"advantage_eps": 0.0})


RULE = Rule(
    code="ADV002",
    name="advantage-beyond-bound",
    kind="E",
    needs=("advantage", "policy_mask", "sample.reward", "sample.group_id", "setup.advantage"),
    taints=("policy",),
    applies=lambda step: step.setup.advantage in ("group", None) and step.setup.algo in ("grpo", None),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(one_right,),
)
