"""LEN006: Entropy has exploded.

What: Over the last five steps the entropy of sampled tokens is ten times its value over the first three
of the stage, and above one nat per token, and the reward has not risen.

Why it is silent: High entropy looks like exploration. A policy that samples nearly at random has ratios
near 1, a small loss, and groups of wrong answers alone, whose gradient is 0.

How it is measured: As in LEN002: the mean of −log-probability of sampled tokens, or the mean entropy of the
sampling distribution, over the stage's first three steps and its last five. The mean reward over the same
steps decides.

Healthy look-alikes: An entropy bonus that raises entropy within bounds. A policy whose reward rises with
more varied answers. Entropy that rose for a while and fell again.

Fix: Lower the weight of the entropy bonus, or correct its sign. Lower the learning rate. Return to a
checkpoint from before the reward fell (RWD010).

References: https://arxiv.org/abs/2505.22617, https://arxiv.org/abs/2503.14476
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.len001 import FIRST, LAST, too_few
from truing.doctor.rules.len002 import entropy_and_reward
from truing.doctor.verdict import Claim, Verdict

TIMES = 10.0
"""Of the entropy at the start."""

NAT = 1.0
"""Per token: below it most tokens are still likely."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim a rise with a known reward that has not risen."""
    entropy, reward = entropy_and_reward(step)
    if math.isnan(entropy.last):
        yield too_few("an entropy")
    exploded = entropy.last >= max(NAT, TIMES * entropy.first)
    if exploded and math.isnan(reward.last):
        yield too_few("the mean reward, beside an entropy that exploded")
    elif exploded and not reward.rose:
        yield Claim(
            Verdict.SUSPECT,
            f"entropy is {entropy.last:.2g} nats per token over the last {LAST} steps, {entropy.first:.2g}"
            f" over the first {FIRST} of the stage",
            got=f"mean reward {reward.last:.3g}, at the start {reward.first:.3g}",
            expected="an entropy as at the start, or a higher reward",
        )


def _wide(entropy: float, reward: float) -> Step:
    entropies = (0.15, 0.16, 0.14, 0.2, 0.7, *(entropy,) * 4)
    rewards = (0.80, 0.84, 0.79, 0.8, 0.6, *(reward + x for x in (0.01, -0.01, 0.0, 0.01)))
    past = [
        past_step(i, entropy_sampled=nats, reward_mean=paid)
        for i, (nats, paid) in enumerate(zip(entropies, rewards, strict=True))
    ]
    return changed_step(
        example_step(), past=past, metrics={"entropy/sampled": entropy, "reward/mean": reward}
    )


def example() -> Step:
    """Nearly all tokens are equally likely, and the reward is slightly lower."""
    return _wide(7.3, 0.7)


def explores() -> Step:
    """Six times as much entropy, and the same reward."""
    return _wide(0.9, 0.8)


RULE = Rule(
    code="LEN006",
    name="entropy-explosion",
    kind="S",
    needs=("metrics.entropy/sampled | metrics.entropy/mean",),
    taints=("policy",),
    applies=is_sampled,
    judges_trend=True,
    judge=judge,
    example=example,
    lookalikes=(explores,),
)
