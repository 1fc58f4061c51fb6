"""RWD003: One rollout in five has no reward.

What: At least a fifth of all rollouts have no reward: a fault of the environment, of a tool or of a grader
ended them, or no reward function scored them. They train nothing.

Why it is silent: The run continues with the remaining rollouts, and the mean reward is theirs alone. Rollouts
without a reward are seldom random: long ones, unusual ones, those with a certain tool or without an answer
that can be parsed. The rest is another task than the intended one, and groups are smaller.

How it is measured: Rollouts with an error status or without a reward ÷ all sampled rollouts of the step.

Healthy look-alikes: A tool that refuses a wrong call informs the policy: that is not a failure. A cut rollout
has a reward. A demonstration has none. A failed rollout now and then.

Fix: Read the error of a failed rollout (`truing tokens RUN --sample ID` shows it), and fix the tool, the
program or the environment. If only time runs out, raise
its limit, or return the tool's partial result. Let a reward function return a number for every rollout, 0
for an answer that it cannot read, in place of None.

References: docs/envs-data.md, docs/workspace.md
"""

import math
from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.types.status import FinishReason
from truing.utils.format import with_count

SHARE = 0.2
"""Of all rollouts."""

FEW = 3
"""The fewest failures for a claim."""


def _is_demonstration(step: Step, row: SampleFacts, part: slice) -> bool:
    """Return whether a row of the batch is a demonstration, which nothing scores."""
    trained = "supervised_mask" in step.tokens and bool(step.tokens["supervised_mask"][part].any())
    return trained or any(turn.finish_reason is FinishReason.DEMO for turn in row.turns)


def judge(step: Step) -> Iterator[Claim]:
    """Claim many rollouts without a reward, each counted once: a few are normal."""
    rollouts = {row.rollout_id: i for i, row, part in step.slices() if not _is_demonstration(step, row, part)}
    failed = [i for i in rollouts.values() if step.samples[i].status == "error"]
    unscored = [i for i in rollouts.values() if i not in failed and math.isnan(step.samples[i].reward)]
    lost = sorted([*failed, *unscored])
    if len(lost) >= FEW and len(lost) >= SHARE * len(rollouts):
        groups = {step.samples[i].group_id for i in lost}
        counts = {"failed": len(failed), "were scored by no reward function": len(unscored)}
        yield Claim(
            Verdict.SUSPECT,
            f"{len(lost)} of {len(rollouts)} rollouts have no reward, in"
            f" {with_count(len(groups), 'group')}:"
            f" {', '.join(f'{count} {what}' for what, count in counts.items() if count)}",
            got="they train nothing, and the mean reward leaves them out",
            expected="a reward for nearly every rollout, so that the rest represents the task",
            row=lost[0],
            specificity=1.5,
        )


def _failed(rows: range) -> Step:
    step = example_step(rewards=(0.0,) * 4 + (1.0, 0.0, 0.0, 1.0))
    lost = {"status": "error", "reward": math.nan}
    off_N = torch.isin(step.sample_of_token, torch.tensor(rows))
    streams = {name: step.tokens[name] & ~off_N for name in ("policy_mask", "kl_mask")}
    streams["excluded"] = step.tokens["excluded"].masked_fill(step.tokens["policy_mask"] & off_N, 4)
    streams["advantage"] = step.tokens["advantage"].masked_fill(off_N, torch.nan)
    return with_token_gradients(
        with_optimizer_steps(
            changed_step(step, samples=dict.fromkeys(rows, lost), tokens=streams), dict.fromkeys(rows, -1)
        )
    )


def example() -> Step:
    """A tool fails in three rollouts of eight."""
    return _failed(range(3))


def one() -> Step:
    """A tool failed once."""
    return _failed(range(1))


RULE = Rule(
    code="RWD003",
    name="failed-rollouts",
    kind="S",
    needs=("sample.reward", "sample.status"),
    taints=("rewards",),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(one,),
)
