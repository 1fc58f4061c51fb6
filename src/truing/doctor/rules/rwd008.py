"""RWD008: Rejection sampling keeps rollouts below the threshold, or leaves out others.

What: A rollout whose reward is below the declared minimum is trained as a demonstration, or one with the
minimum or more is not.

Why it is silent: The loss of supervised fine-tuning on the policy's own rollouts is small and falls, for any
of them. Without rejection the policy becomes more certain of its answers, right or wrong.

How it is measured: The reward of each sample with tokens under a supervised loss, and of each other one with
sampled tokens, against `min_reward`.

Healthy look-alikes: Rejected rollouts, which are in the record without a trained token. A rollout that is
alone in its group, because the others failed. Stages that reject nothing: they declare no minimum.

Fix: Check the comparison and its inputs: rewards of other samples, a sign, a threshold in another unit.

References: https://arxiv.org/abs/2203.14465, https://arxiv.org/abs/2304.06767
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Excluded, Origin

ROUNDING = 1e-6
"""Reward units: rounding in float32."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim any trained reward below the minimum, and any from it on that is not trained."""
    least = step.setup.min_reward
    assert least is not None
    rewards = {
        index: row.reward
        for index, row, where in step.slices()
        if bool(step.tokens["supervised_mask"][where].any()) and not math.isnan(row.reward)
    }
    if below := sum(reward < least - ROUNDING for reward in rewards.values()):
        worst = min(rewards, key=lambda index: rewards[index])
        yield Claim(
            Verdict.PROVEN,
            f"{below} of {len(rewards)} trained samples have a reward below the declared minimum",
            got=f"{rewards[worst]:.3g}",
            expected=f"at least {least:.3g}",
            row=worst,
            specificity=2.4,
        )
    if left := _left_out(step, least):
        yield Claim(
            Verdict.PROVEN,
            f"{len(left)} of {len(step.samples)} samples with the declared minimum reward are not trained",
            got=f"a reward of {step.samples[left[0]].reward:.3g} without a demonstrated token",
            expected=f"a demonstration of each rollout with {least:.3g} or more",
            row=left[0],
            specificity=2.4,
        )


def _left_out(step: Step, least: float) -> list[int]:
    """Return the samples from the minimum on that are no demonstrations, of groups with another reward."""
    if step.setup.algo != "rft" or step.setup.trainer != "truing":
        return []
    graded = {row.rollout_id: row.group_id for row in step.samples if not math.isnan(row.reward)}
    sizes = Counter(graded.values())
    return [
        index
        for index, row, where in step.slices()
        if row.reward >= least
        and sizes[row.group_id] > 1
        and bool((step.tokens["origin"][where] == Origin.SAMPLED).any())
        and not bool((step.tokens["excluded"][where] == Excluded.OTHER_CONVERSATION).any())
    ]


def _demonstrations(rewards: tuple[float, ...]) -> Step:
    """Return answers as demonstrations with a minimum of 0.5; here all are kept."""
    step = example_step(rewards=rewards, setup={"algo": "rft", "advantage": None, "min_reward": 0.5})
    demo_N, none_N = step.tokens["policy_mask"], torch.zeros_like(step.tokens["policy_mask"])
    streams = {
        "origin": step.tokens["origin"].masked_fill(demo_N, Origin.DEMO),
        "excluded": torch.full_like(step.tokens["excluded"], Excluded.NOT_SAMPLED),
        "policy_mask": none_N,
        "kl_mask": none_N,
        "supervised_mask": demo_N,
    }
    without = ["advantage", "token_gradient", "old_logprob", "sampler_logprob"]
    return replace(changed_step(step, tokens=streams, without=without), stage="rft")


def example() -> Step:
    """All answers are kept."""
    return _demonstrations((1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0, 1.0))


def one_left_out() -> Step:
    """The first answer has the minimum reward, and is left as it was sampled."""
    step = just_enough()
    where = step.part(0)
    sampled_N, none_N = step.tokens["origin"].clone(), step.tokens["supervised_mask"].clone()
    sampled_N[where] = sampled_N[where].where(sampled_N[where] != Origin.DEMO, int(Origin.SAMPLED))
    none_N[where] = False
    return changed_step(step, tokens={"origin": sampled_N, "supervised_mask": none_N})


def just_enough() -> Step:
    """Answers with the minimum reward, or more."""
    return _demonstrations((0.5, 1.0) * 4)


RULE = Rule(
    code="RWD008",
    name="rejected-answers-kept",
    kind="C",
    needs=("setup.min_reward", "supervised_mask", "sample.reward"),
    taints=("sft", "policy"),
    # no other method chooses demonstrations by reward
    applies=lambda step: step.setup.algo == "rft" or step.setup.min_reward is not None,
    judge=judge,
    example=example,
    lookalikes=(just_enough,),
)
