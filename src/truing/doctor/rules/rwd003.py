"""RWD003: One attempt in five fails.

What: At least a fifth of all attempts ended by a fault of the environment, of a tool or of a grader. They
have no reward, and are not trained.

Why it is silent: The run continues with the remaining attempts. Failures are seldom random: long attempts,
unusual ones, those with a certain tool. The rest is another task than the intended one, and groups are
smaller.

How it is measured: Attempts with an error status ÷ all sampled attempts of the update.

Healthy look-alikes: A tool that refuses a wrong call informs the policy: that is no failure. A cut attempt
has a reward. A failed attempt now and then.

Fix: Read the traceback in the record, and fix the tool, or the environment. If only time runs out, raise
its limit, or return the tool's partial result.

References: docs/envs-data.md, docs/workspace.md
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, with_token_gradients
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

SHARE = 0.2
"""Of all attempts."""

FEW = 3
"""The fewest failures for a claim."""


class Measured(NamedTuple):
    """Attempts of the update, and those that failed."""

    attempts: int
    failed: int
    groups: int  # with a failed attempt
    row: int  # the first failed one


def measure(step: Step) -> Measured:
    """Count attempts, each once however many samples it has."""
    # a demonstration in the batch has neither a failure nor a reward
    attempts = {
        row.rollout_id: i
        for i, row in enumerate(step.rows)
        if row.status == "error" or not math.isnan(row.reward)
    }
    failed = [i for i in attempts.values() if step.rows[i].status == "error"]
    groups = {step.rows[i].group_id for i in failed}
    return Measured(len(attempts), len(failed), len(groups), failed[0] if failed else 0)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim many failures: a few are normal."""
    if measured.failed >= FEW and measured.failed >= SHARE * measured.attempts:
        yield Claim(
            Verdict.SUSPECT,
            f"{measured.failed} of {measured.attempts} attempts failed, in {measured.groups} groups: no"
            " reward",
            expected="rare failures, so that the rest represents the task",
            row=measured.row,
        )


def _failed(rows: range) -> Step:
    step = example_step(rewards=(0.0,) * 4 + (1.0, 0.0, 0.0, 1.0))
    lost = {"kept": False, "inner_step": -1, "status": "error", "reward": math.nan}
    off_N = torch.isin(step.row_of_token, torch.tensor(rows))
    streams = {name: step.tokens[name] & ~off_N for name in ("policy_mask", "kl_mask")}
    streams["excluded"] = step.tokens["excluded"].masked_fill(step.tokens["policy_mask"] & off_N, 4)
    streams["advantage"] = step.tokens["advantage"].masked_fill(off_N, torch.nan)
    return with_token_gradients(changed_step(step, rows=dict.fromkeys(rows, lost), **streams))


def example() -> Step:
    """A tool fails in three attempts of eight."""
    return _failed(range(3))


def one() -> Step:
    """A tool failed once."""
    return _failed(range(1))


RULE = Rule(
    code="RWD003",
    name="failed-attempts",
    kind="S",
    needs=("row.reward", "row.status"),
    taints=("rewards",),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(one,),
)
