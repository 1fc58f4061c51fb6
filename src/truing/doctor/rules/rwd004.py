"""RWD004: A trained sample has no finite reward.

What: A sample under the policy loss has no reward, or an infinite one.

Why it is silent: A missing reward is a NaN, and mean and deviation over a group make the whole group NaN. A
`nan_to_num` or a `nansum` turns it into a reward of 0, a wrong answer that the policy never gave. With an
infinite one all others of the group look alike.

How it is measured: Samples with a token under the policy loss, a NaN reward and an advantage other than 0,
and samples of the step with an infinite reward.

Healthy look-alikes: A failed rollout has no reward and is not trained. Demonstrations have none, and are
under another loss. A sample without a reward and an advantage of 0 has no effect.

Fix: Record a failure of the grader as a failure of the rollout, and remove it from its group before
computing the baseline.

References: https://github.com/modelscope/ms-swift/issues/8123, https://github.com/huggingface/trl/pull/5775
"""

import math
from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any trained sample without a finite reward."""
    mask_N = step.tokens["policy_mask"]
    advantage_N = step.tokens.get("advantage", torch.ones_like(mask_N))
    trained = {
        index: (row.reward, bool((advantage_N[part][mask_N[part]] != 0).any()))
        for index, row, part in step.slices()
        if step.kept[index] and mask_N[part].any()
    }
    missing = [i for i, (reward, has_advantage) in trained.items() if math.isnan(reward) and has_advantage]
    infinite = [i for i, (reward, _) in trained.items() if math.isinf(reward)]
    for wrong, what in ((missing, "no reward"), (infinite, "an infinite reward")):
        if wrong:
            yield Claim(
                Verdict.PROVEN,
                f"{len(wrong)} of {len(trained)} samples under the policy loss have {what}",
                expected="a number for each trained sample",
                row=min([*missing, *infinite]),
                specificity=3,
            )


def example() -> Step:
    """A judge gave no answer, and the rollout is trained as if it had."""
    return changed_step(example_step(), samples={2: {"reward": math.nan}})


RULE = Rule(
    code="RWD004",
    name="reward-is-no-number",
    kind="E",
    needs=("policy_mask", "sample.reward"),
    taints=("rewards", "policy"),
    applies=is_sampled,
    judge=judge,
    example=example,
)
