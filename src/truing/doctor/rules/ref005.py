"""REF005: The reference sync differs from the declared one.

What: A declared sync is missing, an undeclared one was made, or the share of the old reference is another.

Why it is silent: The KL is relative to a reference somewhere between start and policy in any case, and
grows and falls as usual. A reference that stays behind holds the policy at its start; one that comes too
near holds nothing.

How it is measured: One weight of the reference, another each time, before and after the point of syncs,
against keep · θ_ref + (1 − keep) · θ if a sync is due and against itself otherwise.

Healthy look-alikes: Rounding in float32. A policy that has not moved since the last sync: then no sync is
visible.

Fix: Sync after the optimizer step, by the number of steps of the stage, and average in float32.

References: https://arxiv.org/abs/2404.09656, docs/control.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

SHARE, DIGITS = 1e-3, 8
"""Of the way from reference to policy; and units in the last place of the weight."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim a weight that differs from the formula."""
    sync = step.facts["reference_sync"]
    if sync["largest"] > max(SHARE * sync["apart"], DIGITS * sync["rounding"]):
        how = "by another share than declared" if sync["due"] else "although no sync is due"
        yield Claim(
            Verdict.PROVEN,
            "the reference was not synced, although a sync is due"
            if sync["due"] and not sync["moved"]
            else f"the reference moved {how}",
            got=f"{sync['weight']} is {sync['largest']:.3g} from the formula, and moved by"
            f" {sync['moved']:.3g}",
            expected=f"rounding; the policy was {sync['apart']:.3g} away",
            specificity=2.5,
        )


def _of(**known: object) -> Step:
    facts = {"weight": "w", "due": True, "moved": 0.01, "apart": 0.1, "largest": 1e-9, "rounding": 1e-8}
    return changed_step(
        example_step(setup={"reference_moves": True}), facts={"reference_sync": facts | known}
    )


def example() -> Step:
    """A sync is missing."""
    return _of(moved=0.0, largest=0.01)


def rounded() -> Step:
    """The policy has hardly moved, and rounding hides a part of the way."""
    return _of(apart=2e-8, largest=5e-9, moved=1e-8)


RULE = Rule(
    code="REF005",
    name="reference-not-as-synced",
    kind="E",
    needs=("facts.reference_sync",),
    taints=("reference", "policy"),
    # the first step of a stage, or of a resumed run, has no previous one
    applies=lambda step: step.setup.reference_moves is True and "reference_sync" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(rounded,),
)
