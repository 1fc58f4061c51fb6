"""OPT002: Weights changed between two optimizer steps.

What: The trained weights differ from the result of the previous step, or of the previous optimizer step.
Other code wrote into them: added noise, a merge in place, a load of an older state, another process.

Why it is silent: Every step moves weights, so no metric compares the result of one with the start of the
next. Noise of 1e-6 makes the ratio differ from 1 and looks like a fix. It is a random walk without a
gradient.

How it is measured: The digest over the bits of the next step's part of the weights, directly after a step,
against the same digest at the start of the next one; also with the critic's weights. The digest directly
after each optimizer step, against the one before the next optimizer step or at the end of the step.

Healthy look-alikes: The first step of a stage. A stage that a guard set back, or that was resumed:
weights are those of the checkpoint, bit for bit. Digests are sums, so equal ones prove nothing; unequal
ones do.

Fix: Look for code that writes into parameters outside the optimizer: `data`, `copy_`, `merge_adapter`, an
averaging callback. Ratios of 1 at the first optimizer step need no noise.

References: https://github.com/huggingface/trl/issues/3452, docs/control.md
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


class Measured(NamedTuple):
    """Digests after the previous step and before this one; both "" without a previous one."""

    left: str
    found: str
    written: int  # optimizer steps of this step with a changed result


def measure(step: Step) -> Measured:
    """Compare digests of the same part of the weights, after one step and before the next."""
    stepped = step.facts.get("stepped")
    written = stepped["changed"] if stepped else 0
    before = next((past.facts for past in step.past_of_stage if past.step == step.step - 1), None)
    if before is None or "weights" not in before:
        return Measured("", "", written)
    left, found = before["weights"]["next"], step.facts["weights"]["before"]
    if left == found and stepped and "stepped" in before:  # also the critic's weights
        left, found = before["stepped"]["next"], stepped["before"]
    return Measured(left, found, written)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim any write into the weights between two steps."""
    if measured.left != measured.found:
        yield Claim(
            Verdict.PROVEN,
            "the weights differ from the result of the previous step",
            got=f"digest {measured.found}",
            expected=f"digest {measured.left}",
            specificity=2.5,
        )

    if measured.written:
        yield Claim(
            Verdict.PROVEN,
            "the weights differ from the result of the optimizer step",
            got=f"{with_count(measured.written, 'optimizer step')} of this step with changed weights"
            " afterwards",
            expected="none",
            specificity=2.5,
        )


def example() -> Step:
    """The trainer adds noise so that ratios differ from 1."""
    left = {"weights": {"before": "x", "after": "y", "next": "y"}}
    return drawn_by(replace(changed_step(example_step(), past=[past_step(0, facts=left)]), step=1), "y", 1)


def untouched() -> Step:
    """The weights are unchanged, and the digest of a larger model covers one part at a time."""
    left = {"weights": {"before": "x", "after": "y", "next": "a"}}
    return drawn_by(replace(changed_step(example_step(), past=[past_step(0, facts=left)]), step=1), "a", 1)


RULE = Rule(
    code="OPT002",
    name="weights-changed-between-updates",
    kind="E",
    needs=("facts.weights",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(untouched,),
)
