"""REF001: The reference is not the one that was declared.

What: The weights of the reference have another digest than they should, or than they had at the update
before, though no sync was declared.

Why it is silent: The KL is measured against whatever the reference is. One that was overwritten, or that
follows the policy, keeps the KL small, and it reads like a policy that stays near where it began.

How it is measured: A digest over the bits of the reference's weights beside each update, against the one
that was noted when it was made or synced, and against that of the update before in the same stage.

Healthy look-alikes: Declared syncs, after which the digest is a new one. Another stage, whose reference is
its own start. Equal digests are no proof, for they are sums; unequal ones are.

Fix: Hold the reference in tensors of its own, without gradient and out of the optimiser; look for code that
loads or merges weights in place.

References: https://arxiv.org/abs/2404.09656, docs/control.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule, has_reference
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Digests of the reference."""

    digest: str
    declared: str
    before: str  # at the update before; "" where there is none to compare with
    moves: bool | None  # whether syncs are declared


def measure(step: Step) -> Measured:
    """The digest now, as it was noted, and as it was."""
    now = step.facts["reference"]
    # of a large reference another part may be summed each time, and then "part" says which
    parts = [past.facts.get("reference", {}) for past in step.past_of_stage[-1:]]
    before = [each["digest"] for each in parts if each and each.get("part") == now.get("part")]
    return Measured(now["digest"], now["declared"], before[0] if before else "", step.setup.reference_moves)


def judge(found: Measured) -> Iterator[Claim]:
    """Digests are equal or not."""
    if found.digest != found.declared:
        yield Claim(
            Verdict.PROVEN,
            "the weights of the reference are not those that were noted",
            got=found.digest,
            expected=found.declared,
            specificity=3,
        )
    elif found.before and found.before != found.digest and found.moves is False:
        yield Claim(
            Verdict.PROVEN,
            "the reference has changed since the update before, and no sync is declared",
            got=found.digest,
            expected=found.before,
            specificity=2.5,
        )


def example() -> Step:
    """An adapter was merged into the base that the reference shares."""
    return changed_step(example_step(), facts={"reference": {"digest": "c", "declared": "b"}})


def synced() -> Step:
    """A declared sync after the update before."""
    before = past_step(0, facts={"reference": {"digest": "b", "declared": "b"}})
    facts = {"reference": {"digest": "c", "declared": "c"}}
    return changed_step(example_step(), facts=facts, past=[before], setup={"reference_moves": True})


RULE = Rule(
    code="REF001",
    name="reference-changed",
    kind="E",
    needs=("facts.reference",),
    taints=("reference", "policy"),
    applies=lambda step: has_reference(step) or "reference" in step.facts,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(synced,),
)
