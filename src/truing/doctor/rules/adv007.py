"""ADV007: Tiny reward differences give full advantages.

What: The rewards of some groups differ by a thousandth of the usual difference, and their tokens have
advantages as large as those of any other group. The division by the group's deviation amplifies noise.

Why it is silent: The formula says so. An advantage divided by the deviation of its group does not depend on
the size of that deviation, so 0.5001 against 0.5 counts like 1 against 0.

How it is measured: The rule takes groups whose rewards differ by less than a thousandth of the range of all
rewards of the step. It compares the largest advantage in each with the largest that its size allows. It
needs two such groups, and a tenth of the groups with unequal rewards.

Healthy look-alikes: A grader with an intended smallest difference. One group of near-equal answers among
many. Advantages that are not divided, or divided by the deviation of all rewards: these stay small.

Fix: Round rewards to the grader's resolution, or do not divide by the group's deviation
(in TRL `scale_rewards = "none"`, or "batch"; in a recipe `grpo.advantage_scale`).

References: https://arxiv.org/abs/2503.20783, https://arxiv.org/abs/2508.08221
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.rewards import shaped_rewards
from truing.doctor.rule import Rule, compares_rewards_only
from truing.doctor.rules.adv002 import advantage_sizes, largest_advantage
from truing.doctor.token_places import whole_sample
from truing.doctor.verdict import Claim, Verdict

TINY = 1e-3
"""Of the range of all rewards of the step."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim two groups, and a tenth of those with unequal rewards."""
    rewards, largest = shaped_rewards(step), _largest_of_groups(step)
    every = [reward for each in rewards.values() for reward in each.values()]
    span = max(every, default=0.0) - min(every, default=0.0)
    ranges = {name: max(each.values()) - min(each.values()) for name, each in rewards.items()}
    differing = {name: gap for name, gap in ranges.items() if gap > 0}
    promoted = [
        name
        for name, gap in differing.items()
        if gap < TINY * span and largest[name][0] >= 0.5 * largest_advantage(len(rewards[name]))
    ]
    if len(promoted) >= 2 and len(promoted) >= 0.1 * len(differing):
        advantage, row = largest[promoted[0]]
        yield Claim(
            Verdict.SUSPECT,
            f"rewards of {len(promoted)} of {len(differing)} groups differ by almost nothing, and have"
            " full advantages",
            got=f"a gap of {differing[promoted[0]]:.2g} gives an advantage of {advantage:.3g}; all rewards"
            f" span {span:.3g}",
            expected="small advantages for small differences",
            **whole_sample(step, row),
            specificity=1,
        )


def _largest_of_groups(step: Step) -> dict[str, tuple[float, int]]:
    """Return the largest advantage of each group, and its sample."""
    advantage_N, largest = advantage_sizes(step), dict[str, tuple[float, int]]()
    for index, row, part in step.slices():
        if step.kept[index] and not math.isnan(row.reward):
            candidate = float(advantage_N[part].max()), index
            largest[row.group_id] = max(largest.get(row.group_id, candidate), candidate)
    return largest


def example() -> Step:
    """A length term in the sixth digit decides between answers that are all wrong."""
    noise = tuple(1e-6 * i for i in range(4))
    return example_step(
        answers=(4,) * 12,
        rewards=(1.0, 0.0, 0.0, 1.0, *noise, *noise[::-1]),
        setup={"advantage_eps": 1e-8},
    )


def undivided() -> Step:
    """The same rewards, and advantages without a division."""
    healthy = example()
    step = example_step(
        answers=(4,) * 12, rewards=[row.reward for row in healthy.samples], setup={"advantage": "none"}
    )
    return changed_step(step, metrics={"advantage/max_abs": 0.5})


RULE = Rule(
    code="ADV007",
    name="noise-promoted",
    kind="S",
    needs=("advantage", "policy_mask", "sample.reward", "sample.group_id"),
    taints=("policy",),
    applies=lambda step: step.setup.algo in ("grpo", "rloo", None) and compares_rewards_only(step),
    judge=judge,
    example=example,
    lookalikes=(undivided,),
)
