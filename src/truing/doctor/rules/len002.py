"""LEN002: Entropy has collapsed.

What: Over the last five steps the entropy of sampled tokens is less than a tenth of its value over the
first three of the stage.

Why it is silent: A policy that always gives the same answer has no spread in its groups. Advantages, losses
and gradients are then 0, as they are at the end of a good run.

How it is measured: The mean of −log-probability of sampled tokens over the stage's first three steps and
its last five. For another trainer's log, the mean entropy of the sampling distribution. The mean reward
over the same steps decides; where nearly all groups are tied and fewer than half are all right, the policy
stopped before it had learned. No single value of entropy is healthy for all models: an instruct model may
begin at 0.3 nats.

Healthy look-alikes: Entropy falls as reward rises. If the reward rose, or nearly all groups are all right,
convergence and collapse look alike, and the rule answers CANNOT TELL.

Fix: Look for what makes the policy sharper without better answers: too high a learning rate, an entropy
bonus with the wrong sign, a clip that lets only likely tokens grow, groups of equal rewards.

References: https://arxiv.org/abs/2505.22617, https://arxiv.org/abs/2503.14476
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.len001 import FIRST, LAST, MOSTLY, Ends, ends, right_by_now, too_few
from truing.doctor.verdict import Claim, Verdict

TENTH = 0.1
"""Of the entropy at the start."""

TIED = 0.9
"""Of the groups."""

ENTROPIES = ("entropy/sampled", "entropy/mean")
"""In order of preference: over all groups, then over the groups in the step."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim a collapse, or CANNOT TELL if the reward is high."""
    entropy, reward = entropy_and_reward(step)
    if math.isnan(entropy.last):
        yield too_few("an entropy")
    if not entropy.last < TENTH * entropy.first:
        return
    right = right_by_now(step.metrics_of_stage) >= MOSTLY
    stopped = not right and _is_tied(step.metrics_of_stage)
    unpaid = stopped or not (math.isnan(reward.last) or reward.rose or right)
    yield Claim(
        Verdict.SUSPECT if unpaid else Verdict.CANNOT_TELL,
        f"entropy is {entropy.last:.2g} nats per token over the last {LAST} steps, {entropy.first:.2g} over"
        f" the first {FIRST} of the stage",
        got=f"mean reward {reward.last:.3g}, at the start {reward.first:.3g}",
        expected="groups that differ until most are all right"
        if stopped
        else "a reward that rose"
        if unpaid
        else "converged or collapsed: both look the same",
        remedy=""
        if unpaid
        else "continue at temperature 1 on other tasks: a converged policy earns reward there"
        " too, and a collapsed one gives the same answer to all of them",
    )


def _is_tied(metrics: Sequence[Mapping[str, float]]) -> bool:
    """Return whether nearly all of the last groups are tied, and it is known how many are all right."""
    last = metrics[-LAST:]
    known = all("group/all_right_share" in numbers for numbers in last)
    bounded = all(0 <= numbers.get("reward/mean", math.nan) <= 1 for numbers in metrics)
    tied = [numbers.get("group/zero_variance_share", math.nan) for numbers in last]
    return (known or bounded) and fmean(tied) >= TIED  # false for NaN


def entropy_and_reward(step: Step) -> tuple[Ends, Ends]:
    """Return entropy and reward at the start of the stage so far and at its end."""
    known = (name for name in ENTROPIES if math.isfinite(step.metrics.get(name, math.nan)))
    entropy, reward = (ends(step.known(name).values()) for name in (next(known), "reward/mean"))
    return entropy, reward


def _narrow(entropy: float, reward: float) -> Step:
    entropies = (0.35, 0.36, 0.33, 0.2, 0.1, *(entropy,) * 4)
    rewards = (0.30, 0.34, 0.29, 0.3, 0.3, *(reward + x for x in (0.01, -0.01, 0.0, 0.01)))
    past = [
        past_step(i, entropy_sampled=nats, reward_mean=paid)
        for i, (nats, paid) in enumerate(zip(entropies, rewards, strict=True))
    ]
    return changed_step(
        example_step(), past=past, metrics={"entropy/sampled": entropy, "reward/mean": reward}
    )


def example() -> Step:
    """A hundredth of the entropy is left, and the reward has not changed."""
    return _narrow(0.004, 0.31)


def low_from_the_start() -> Step:
    """An instruct model at a third of a nat learns, and loses half of it."""
    return _narrow(0.15, 0.8)


RULE = Rule(
    code="LEN002",
    name="entropy-collapse",
    kind="S",
    needs=("metrics.entropy/sampled | metrics.entropy/mean",),
    taints=("policy",),
    applies=is_sampled,
    judges_trend=True,
    judge=judge,
    example=example,
    lookalikes=(low_from_the_start,),
)
