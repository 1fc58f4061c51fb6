"""RWD004: A reward that is trained on is not a number.

What: A row under the policy loss has no reward, or an infinite one.

Why it is silent: A missing reward is a NaN, and means and deviations over a group make NaNs of all of it; a
`nan_to_num` or a `nansum` on the way makes a reward of 0 of it, which is a wrong answer that nobody gave.
With an infinite one all others of the group look alike.

How it is measured: Rows with a token under the policy loss whose reward is NaN while their advantage is
anything but 0, and rows of the update whose reward is infinite.

Healthy look-alikes: An attempt that failed has no reward and is in no update. Demonstrations have none, and
are under another loss. A row without a reward whose advantage is 0 moves nothing.

Fix: Record a failure of the grader as a failure of the attempt, and leave it out of its group before the
baseline is computed.

References: https://github.com/modelscope/ms-swift/issues/8123, https://github.com/huggingface/trl/pull/5775
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Rows that are trained on with a reward that is none."""

    missing: int
    infinite: int
    rows: int  # of the update, with a token under the policy loss
    row: int  # the first of them


def measure(step: Step) -> Measured:
    """Look at the reward of each row that pulls."""
    mask_N = step.tokens["policy_mask"]
    missing, infinite, rows = list[int](), list[int](), 0
    for index, row, part in step.slices():
        trained_T = mask_N[part]
        if not row.kept or not trained_T.any():
            continue
        rows += 1
        pulls = "advantage" not in step.tokens or bool((step.tokens["advantage"][part][trained_T] != 0).any())
        if math.isnan(row.reward) and pulls:
            missing.append(index)
        if math.isinf(row.reward):
            infinite.append(index)
    return Measured(len(missing), len(infinite), rows, min([*missing, *infinite], default=0))


def judge(found: Measured) -> Iterator[Claim]:
    """What has no reward teaches nothing."""
    for count, what in ((found.missing, "no reward"), (found.infinite, "an infinite reward")):
        if count:
            yield Claim(
                Verdict.PROVEN,
                f"{count} of {found.rows} rows under the policy loss have {what}",
                expected="a number for each row that is trained on",
                row=found.row,
                specificity=3,
            )


def example() -> Step:
    """A judge gave no answer, and the attempt was trained on as if it had."""
    return changed_step(example_step(), rows={2: {"reward": math.nan}})


RULE = Rule(
    code="RWD004",
    name="reward-is-no-number",
    kind="E",
    needs=("policy_mask", "row.reward"),
    taints=("rewards", "policy"),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
)
