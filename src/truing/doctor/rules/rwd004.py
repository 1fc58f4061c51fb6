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
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Trained samples without a finite reward."""

    missing: int
    infinite: int
    rows: int  # of the step, with a token under the policy loss
    row: int  # the first of them


def measure(step: Step) -> Measured:
    """Check the reward of each sample with an advantage."""
    mask_N = step.tokens["policy_mask"]
    missing, infinite, rows = list[int](), list[int](), 0
    for index, row, part in step.slices():
        trained_T = mask_N[part]
        if not step.kept[index] or not trained_T.any():
            continue
        rows += 1
        has_advantage = "advantage" not in step.tokens or bool(
            (step.tokens["advantage"][part][trained_T] != 0).any()
        )
        if math.isnan(row.reward) and has_advantage:
            missing.append(index)
        if math.isinf(row.reward):
            infinite.append(index)
    return Measured(len(missing), len(infinite), rows, min([*missing, *infinite], default=0))


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim any trained sample without a finite reward."""
    for count, what in ((measured.missing, "no reward"), (measured.infinite, "an infinite reward")):
        if count:
            yield Claim(
                Verdict.PROVEN,
                f"{count} of {measured.rows} samples under the policy loss have {what}",
                expected="a number for each trained sample",
                row=measured.row,
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
    measure=measure,
    judge=judge,
    example=example,
)
