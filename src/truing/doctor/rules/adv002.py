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

from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.rule import Rule
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-4
"""Of the bound: float32 keeps 1e-7 of an advantage."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim proof beyond the wider bound; between the two bounds the definition decides."""
    largest, size, index = _farthest(step)
    bound, wide = largest_advantage(size), math.sqrt(size - 1)  # by the deviation of sample and population
    if largest > bound * (1 + ROUNDING):
        here_N = (step.sample_of_token == index) & (advantage_sizes(step) == largest)
        where = places(step, here_N)
        sure = step.setup.trainer == "truing" or largest > wide * (1 + ROUNDING)
        note = "" if sure else "; within √(G − 1), the bound for the population deviation"
        yield Claim(
            Verdict.PROVEN if sure else Verdict.SUSPECT,
            f"an advantage of {largest:.4g} in group {step.samples[index].group_id} of {size}{note}",
            got=f"{largest:.4g} at sample {index}",
            expected=f"at most (G − 1)/√G = {bound:.4g}",
            **where.claim_fields,
            specificity=1.5,
        )


def _farthest(step: Step) -> tuple[float, int, int]:
    """Return the advantage that is farthest beyond its bound, the size of its group, and its sample."""
    rollouts: dict[str, set[str]] = defaultdict(set)
    for row in step.samples:
        if not math.isnan(row.reward):
            rollouts[row.group_id].add(row.rollout_id)
    advantage_N, found = advantage_sizes(step), [(0.0, 2, 0)]
    for index, row, part in step.slices():
        size = max(len(rollouts[row.group_id]), step.setup.group_size or 0)
        if step.kept[index] and size >= 2 and part.start < part.stop:
            found.append((float(advantage_N[part].max()), size, index))
    return max(found, key=lambda each: each[0] / largest_advantage(each[1]))


def advantage_sizes(step: Step) -> Tensor:
    """Return the absolute advantage of each token under the policy loss, 0 elsewhere: [N]."""
    return step.tokens["advantage"].abs().masked_fill(~step.tokens["policy_mask"], 0.0).nan_to_num()


def largest_advantage(size: int) -> float:
    """Return the largest advantage that a group of that size allows, divided by its deviation."""
    return (size - 1) / math.sqrt(size)


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
    judge=judge,
    example=example,
    lookalikes=(one_right,),
)
