"""LEN006: Entropy has exploded.

What: Over the last five updates the entropy of what is drawn is ten times what it was over the first three
of the stage, and above one nat per token, while the reward has not risen.

Why it is silent: Much entropy is taken for exploration. A policy that says anything at all has ratios near
1, a small loss, and groups that are all wrong, whose gradient is 0.

How it is measured: As LEN002 does: the mean of −log-probability of drawn tokens, or the mean entropy of
what they were drawn from, over the stage's first three updates and its last five, beside the mean reward.

Healthy look-alikes: A bonus on the entropy that lifts it within bounds. A policy whose reward rises as it
says more different things. Entropy that rose for a while and came back.

Fix: Take the weight of the entropy bonus back, or its sign; lower the learning rate; go back to a checkpoint
from before the reward fell (RWD010).

References: https://arxiv.org/abs/2505.22617, https://arxiv.org/abs/2503.14476
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.len001 import FIRST, LAST
from truing.doctor.rules.len002 import Measured, measure
from truing.doctor.verdict import Claim, Verdict

TIMES = 10.0
"""Of what it was."""

NAT = 1.0
"""Per token: below it a policy is still sure of most tokens."""


def judge(found: Measured) -> Iterator[Claim]:
    """Where the reward is known, and has not risen."""
    entropy, reward = found.entropy, found.reward
    exploded = entropy.last >= max(NAT, TIMES * entropy.first)
    if exploded and not math.isnan(reward.last) and not reward.rose:
        yield Claim(
            Verdict.SUSPECT,
            f"entropy is {entropy.last:.2g} nats per token over the last {LAST} updates, {entropy.first:.2g}"
            f" over the first {FIRST} of the stage",
            got=f"mean reward {reward.last:.3g}, at first {reward.first:.3g}",
            expected="a policy that is as sure of its tokens as it was, or earns more",
        )


def _wide(entropy: float, reward: float) -> Step:
    entropies = (0.15, 0.16, 0.14, 0.2, 0.7, *(entropy,) * 4)
    rewards = (0.80, 0.84, 0.79, 0.8, 0.6, *(reward + x for x in (0.01, -0.01, 0.0, 0.01)))
    told = [
        past_step(i, entropy_drawn=nats, reward_mean=paid)
        for i, (nats, paid) in enumerate(zip(entropies, rewards, strict=True))
    ]
    return changed_step(example_step(), past=told, numbers={"entropy/drawn": entropy, "reward/mean": reward})


def example() -> Step:
    """Nearly any token is as good as any other, and the reward is a little less."""
    return _wide(7.3, 0.7)


def explores() -> Step:
    """Six times as much entropy, and the reward is what it was."""
    return _wide(0.9, 0.8)


RULE = Rule(
    code="LEN006",
    name="entropy-explosion",
    kind="S",
    needs=("numbers.entropy/drawn | numbers.entropy/contract",),
    taints=("policy",),
    applies=is_sampled,
    judges_trend=True,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(explores,),
)
