"""OPT002: Weights changed between two steps of the optimiser.

What: The trained weights are not those that the update, or the step of the optimiser, before left. Something
wrote into them: noise that was added, a merge in place, a load of an older state, another process.

Why it is silent: Every update moves weights, so nobody compares what one leaves with what the next one
finds. Noise of 1e-6 makes the ratio differ from 1 and looks like a cure; it is a random walk, and no
gradient made it.

How it is measured: The digest over the bits of the weights that the next update will look at, taken right
after an update, against the one that the next update takes before it moves anything; and the digest right
behind each step of the optimiser, against the one before its next step or at the end of the update.

Healthy look-alikes: The first update of a stage. A stage that was set back by a guard, or resumed: weights
are those of the checkpoint, bit for bit. Digests are sums, so equal ones prove nothing; unequal ones do.

Fix: Look for code that writes into parameters outside the optimiser: `data`, `copy_`, `merge_adapter`, an
averaging callback. Ratios of 1 at the first update need no noise.

References: https://github.com/huggingface/trl/issues/3452, docs/control.md
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


class Measured(NamedTuple):
    """What the update before left, and what this one found; both "" where there was none."""

    left: str
    found: str
    written: int  # steps of this update whose result somebody wrote into


def measure(step: Step) -> Measured:
    """Digests of the same part of the weights, after one update and before the next."""
    before = [past for past in step.past_of_stage if past.step == step.step - 1 and "weights" in past.facts]
    written = step.facts.get("stepped", {}).get("changed", 0)
    if not before:
        return Measured("", "", written)
    return Measured(before[-1].facts["weights"]["next"], step.facts["weights"]["before"], written)


def judge(found: Measured) -> Iterator[Claim]:
    """Between two updates nothing may write into the weights."""
    if found.left != found.found:
        yield Claim(
            Verdict.PROVEN,
            "the weights are not those that the update before left",
            got=f"digest {found.found}",
            expected=f"digest {found.left}",
            specificity=2.5,
        )

    if found.written:
        yield Claim(
            Verdict.PROVEN,
            "the weights are not those that the optimiser's step left",
            got=f"{with_count(found.written, 'step')} of this update with other weights behind it",
            expected="none",
            specificity=2.5,
        )


def example() -> Step:
    """Noise was added so that ratios differ from 1."""
    left = {"weights": {"before": "x", "after": "y", "next": "y"}}
    return drawn_by(replace(changed_step(example_step(), past=[past_step(0, facts=left)]), step=1), "y", 1)


def untouched() -> Step:
    """The update before left what this one found, though a larger model is summed part by part."""
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
