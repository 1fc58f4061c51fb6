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

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim any write into the weights between two steps, or after an optimizer step."""
    stepped = step.facts.get("stepped")
    if step.previous is not None and "weights" in step.previous.facts:
        before = step.previous.facts
        left, found = before["weights"]["next"], step.facts["weights"]["before"]
        if left == found and stepped and "stepped" in before:  # also the critic's weights
            left, found = before["stepped"]["next"], stepped["before"]
        if left != found:
            yield Claim(
                Verdict.PROVEN,
                "the weights differ from the result of the previous step",
                got=f"digest {found}",
                expected=f"digest {left}",
                specificity=2.5,
            )
    if stepped and stepped["changed"]:
        yield Claim(
            Verdict.PROVEN,
            "the weights differ from the result of the optimizer step",
            got=f"{with_count(stepped['changed'], 'optimizer step')} of this step with changed weights"
            " afterwards",
            expected="none",
            specificity=2.5,
        )


def example() -> Step:
    """The trainer adds noise so that ratios differ from 1."""
    left = {"weights": {"before": "x", "after": "y", "next": "y"}}
    return drawn_by(changed_step(example_step(), past=[past_step(0, facts=left)]), "y", 1)


def untouched() -> Step:
    """The weights are unchanged, and the digest of a larger model covers one part at a time."""
    left = {"weights": {"before": "x", "after": "y", "next": "a"}}
    return drawn_by(changed_step(example_step(), past=[past_step(0, facts=left)]), "a", 1)


RULE = Rule(
    code="OPT002",
    name="weights-changed-between-steps",
    kind="E",
    needs=("facts.weights",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(untouched,),
)
