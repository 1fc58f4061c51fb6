"""ADV003: Rollouts of equal reward have an advantage.

What: All rewards of a group are equal, so no rollout is better than another. Its tokens still have an
advantage.

Why it is silent: A mean of equal numbers differs from them by rounding, and the code divides that rounding
by its own deviation. The result is of the order of 1, and looks like any other advantage.

How it is measured: The rule takes the groups with a complete record and equal rewards, less the penalties
that the recipe declares for truncated and long answers. It finds the largest advantage of their tokens.
Rounding over a denominator of 1e-4 leaves a few thousandths. That has no effect, and the rule ignores it.

Healthy look-alikes: Rewards that differ by little: ADV007 covers those. A group with an incomplete record:
the other rollouts may have another reward. The rule does not apply with a KL in the reward or an advantage
per turn: then more than the rewards counts.

Fix: Set advantages to 0 if the largest reward of a group is its smallest, before any division. Compute mean
and deviation in float64.

References: https://arxiv.org/abs/2402.03300, https://arxiv.org/abs/2503.14476
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.oracle.rewards import shaped_rewards
from truing.doctor.rule import Rule, compares_rewards_only, is_grouped
from truing.doctor.rules.adv002 import advantage_sizes
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict

NOTHING = 1e-2
"""An advantage without effect: float32 over a denominator of 1e-4 leaves 0.003."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim advantages beyond rounding in whole groups of equal reward."""
    size = step.setup.group_size
    equal = {
        group: next(iter(each.values()))
        for group, each in shaped_rewards(step).items()
        if len(each) >= max(size or 2, 2) and max(each.values()) == min(each.values())
    }
    of_equal_N = torch.tensor(
        [kept and row.group_id in equal for row, kept in zip(step.samples, step.kept, strict=True)]
    )[step.sample_of_token]
    advantage_N = advantage_sizes(step).masked_fill(~of_equal_N, 0.0)
    wrong = {step.samples[int(row)].group_id for row in step.sample_of_token[advantage_N > NOTHING].unique()}
    if wrong:
        where = places(step, advantage_N == advantage_N.max())
        reward = equal[step.samples[where.row].group_id]
        yield Claim(
            Verdict.SUSPECT if size is None else Verdict.PROVEN,
            f"{len(wrong)} of {len(equal)} groups of equal reward have advantages",
            got=f"up to {float(advantage_N.max()):.4g}, where all rewards are {reward:g}",
            expected="0",
            **where.claim_fields,
            specificity=2.2,
        )


def example() -> Step:
    """Rounding is divided by its own deviation."""
    healthy = example_step(rewards=(0.1,) * 4 + (1.0, 0.0, 0.0, 1.0))
    sign_N = torch.where(healthy.sample_of_token % 2 == 0, 0.5, -0.5)
    wrong_N = torch.where(healthy.sample_of_token < 4, sign_N, healthy.tokens["advantage"])
    return with_token_gradients(
        changed_step(healthy, advantage=wrong_N.masked_fill(~healthy.tokens["policy_mask"], torch.nan))
    )


def equal() -> Step:
    """Groups of equal reward, and advantages of 0."""
    return example_step(rewards=(1.0,) * 4 + (0.1,) * 4)


def kl_in_reward() -> Step:
    """The KL in the reward tells rollouts of equal reward apart."""
    return changed_step(example(), setup={"kl_where": "reward", "kl_coef": 0.1})


def penalised() -> Step:
    """A penalty for truncated answers tells answers of equal reward apart."""
    shaped = example_step(rewards=(-1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 1.0))
    rows = {i: {"reward": 0.0, "truncated": i % 2 == 0, "status": "truncated"} for i in range(4)}
    return changed_step(shaped, setup={"truncated": "penalize", "truncated_penalty": 1.0}, samples=rows)


RULE = Rule(
    code="ADV003",
    name="equal-rewards-with-advantage",
    kind="E",
    needs=("advantage", "policy_mask", "sample.reward", "sample.group_id", "setup.advantage"),
    taints=("policy",),
    applies=lambda step: is_grouped(step) and compares_rewards_only(step),
    judge=judge,
    example=example,
    lookalikes=(equal, kl_in_reward, penalised),
)
