"""REF001: The reference is not the declared one.

What: The weights of the reference have another digest than recorded, or than at an earlier step of the
stage, without a declared sync.

Why it is silent: The KL is relative to any reference. An overwritten one, or one that follows the policy,
keeps the KL small, and the policy seems to stay near its start.

How it is measured: A digest over the bits of the reference's weights, against the one recorded when the
reference was made or synced, and against the last one of an earlier step of the stage, also of before a
resume: a fixed reference has one digest in all of its stage.

Healthy look-alikes: Declared syncs, after which the digest changes. Another stage, whose reference is its
own start. Equal digests are not proof, since they are sums; unequal ones are.

Fix: Keep the reference in tensors of its own, without gradient and outside the optimizer. Look for code
that loads or merges weights in place.

References: https://arxiv.org/abs/2404.09656, docs/control.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, has_reference
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Digests of the reference."""

    digest: str
    declared: str
    before: str  # the last one of an earlier step of the stage; "" without a comparable one
    moves: bool | None  # whether the recipe declares syncs


def measure(step: Step) -> Measured:
    """Return the digest now, the recorded one, and the last one of an earlier step."""
    now = step.facts["reference"]
    # for a large reference the digest may cover another part each time, named by "part"
    known = [past.facts["reference"] for past in step.past_of_stage if "reference" in past.facts]
    before = [each["digest"] for each in known if each.get("part") == now.get("part")]
    return Measured(now["digest"], now["declared"], before[-1] if before else "", step.setup.reference_moves)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim unequal digests."""
    if measured.digest != measured.declared:
        yield Claim(
            Verdict.PROVEN,
            "the weights of the reference differ from the recorded ones",
            got=measured.digest,
            expected=measured.declared,
            specificity=3,
        )
    elif measured.before and measured.before != measured.digest and measured.moves is False:
        yield Claim(
            Verdict.PROVEN,
            "the reference has changed since an earlier step, without a declared sync",
            got=measured.digest,
            expected=measured.before,
            specificity=2.5,
        )


def example() -> Step:
    """An adapter is merged into the base that the reference shares."""
    return changed_step(example_step(), facts={"reference": {"digest": "c", "declared": "b"}})


def replaced() -> Step:
    """A resumed run has another reference; the step before the resume had no digest."""
    past = [past_step(0, facts={"reference": {"digest": "b", "declared": "b"}}), past_step(1)]
    facts = {"reference": {"digest": "c", "declared": "c"}}
    return changed_step(example_step(), facts=facts, past=past, setup={"reference_moves": False})


def synced() -> Step:
    """A declared sync after the previous step."""
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
