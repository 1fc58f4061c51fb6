"""REF005: The reference does not follow the policy as declared.

What: A sync that is declared was not made, one was made that is not, or the share of the old reference that
was kept is another.

Why it is silent: The KL is to somewhere in between in any case, and grows and falls as it would. A
reference that stays behind holds the policy where it began; one that comes too near holds nothing.

How it is measured: One weight of the reference, another each time, before and after the point at which
syncs are made, against keep · θ_ref + (1 − keep) · θ where one is due and against itself where none is.

Healthy look-alikes: What float32 rounds off. A policy that has not moved since the last sync: then there is
nothing to see.

Fix: Sync after the optimiser's step, by the number of updates of the stage, and average in float32.

References: https://arxiv.org/abs/2404.09656, docs/control.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

SHARE, DIGITS = 1e-3, 8
"""Of the way from reference to policy; and so many times the last digit of the weight."""


class Measured(NamedTuple):
    """One weight of the reference, around the point at which it may be synced."""

    weight: str
    due: bool
    moved: float
    apart: float
    largest: float  # from where it is declared to be
    rounding: float


def measure(step: Step) -> Measured:
    """As it was computed a second time, after the update before this one."""
    known = step.facts["follow"]
    return Measured(**{name: known[name] for name in Measured._fields})


def judge(found: Measured) -> Iterator[Claim]:
    """A weight is where the formula brings it, or not."""
    if found.largest > max(SHARE * found.apart, DIGITS * found.rounding):
        told = "by another share than is declared" if found.due else "though no sync is due"
        yield Claim(
            Verdict.PROVEN,
            "the reference was not synced, though it is declared"
            if found.due and not found.moved
            else f"the reference moved {told}",
            got=f"{found.weight} is {found.largest:.3g} from there, and moved by {found.moved:.3g}",
            expected=f"rounding; the policy was {found.apart:.3g} away",
            specificity=2.5,
        )


def _of(**known: object) -> Step:
    facts = {"weight": "w", "due": True, "moved": 0.01, "apart": 0.1, "largest": 1e-9, "rounding": 1e-8}
    return changed_step(example_step(setup={"reference_moves": True}), facts={"follow": facts | known})


def example() -> Step:
    """A sync that was left out."""
    return _of(moved=0.0, largest=0.01)


def rounded() -> Step:
    """The policy has hardly moved, and rounding takes a part of the way."""
    return _of(apart=2e-8, largest=5e-9, moved=1e-8)


RULE = Rule(
    code="REF005",
    name="reference-not-as-synced",
    kind="E",
    needs=("facts.follow",),
    taints=("reference", "policy"),
    # the first update of a stage, or of a run that went on, has none before it
    applies=lambda step: step.setup.reference_moves is True and "follow" in step.facts,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(rounded,),
)
