"""REF001: The reference is not the declared one.

What: The weights of the reference have another digest than recorded, or than at an earlier step of the
stage, without a declared sync.

Why it is silent: The KL is relative to any reference. An overwritten one, or one that follows the policy,
keeps the KL small, and the policy seems to stay near its start.

How it is measured: A digest over the bits of the reference's weights, against the one recorded when the
reference was made, synced or restored. And that one, at every step, against the one of the step before, also
of before a resume: it changes by a due sync alone, and a fixed reference has one digest in all of its stage.

Healthy look-alikes: Declared syncs, after which the digest changes. Another stage, whose reference is its
own start. Equal digests are not proof, since they are sums; unequal ones are.

Fix: Keep the reference in tensors of its own, without gradient and outside the optimizer. Look for code
that loads or merges weights in place.

References: https://arxiv.org/abs/2404.09656, docs/control.md
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, has_reference
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Digests of the reference."""

    digest: str  # "" without an audit
    declared: str
    before: str  # the declared one of the last step of the stage that has one; "" without a comparable one
    moved: bool | None  # whether a sync may be between the two; None if that is unknown


def measure(step: Step) -> Measured:
    """Return the digest now, the recorded one, and the last one of an earlier step."""
    now = step.facts["reference"]
    # for a large reference the digest may cover another part each time, named by "part"
    known = [past for past in step.past_of_stage if "reference" in past.facts]
    before = [past for past in known if past.facts["reference"].get("part") == now.get("part")]
    last = before[-1].facts["reference"]["declared"] if before else ""
    moved = step.setup.reference_moves
    if moved and before and before[-1].step == step.step - 1 and "reference_sync" in step.facts:
        moved = step.facts["reference_sync"]["due"]
    return Measured(now.get("digest", ""), now["declared"], last, moved)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim unequal digests."""
    if measured.digest not in ("", measured.declared):
        yield Claim(
            Verdict.PROVEN,
            "the weights of the reference differ from the recorded ones",
            got=measured.digest,
            expected=measured.declared,
            specificity=3,
        )
    elif measured.before and measured.before != measured.declared and measured.moved is False:
        yield Claim(
            Verdict.PROVEN,
            "the reference has changed since an earlier step, without a declared sync",
            got=measured.declared,
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


def between_syncs() -> Step:
    """A resumed run has its policy as the reference, and no sync was due."""
    step = synced()
    sync = {**step.facts["reference_sync"], "due": False}
    return changed_step(step, facts={"reference_sync": sync})


def synced() -> Step:
    """A declared sync after the previous step."""
    before = past_step(0, facts={"reference": {"digest": "b", "declared": "b"}})
    sync = {"weight": "w", "due": True, "moved": 0.01, "apart": 0.01, "largest": 0.0, "rounding": 1e-8}
    facts = {"reference": {"declared": "c"}, "reference_sync": sync}
    step = changed_step(example_step(), facts=facts, past=[before], setup={"reference_moves": True})
    return replace(step, step=1)


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
