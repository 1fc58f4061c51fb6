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

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, has_reference
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim unequal digests, and one that changed without a declared sync."""
    now = step.facts["reference"]
    # for a large reference the digest may cover another part each time, named by "part"
    known = [past for past in step.past_of_stage if "reference" in past.facts]
    before = [past for past in known if past.facts["reference"].get("part") == now.get("part")]
    last = before[-1].facts["reference"]["declared"] if before else ""
    moves = step.setup.reference_moves
    if moves and before and before[-1] is step.previous and "reference_sync" in step.facts:
        moves = step.facts["reference_sync"]["due"]
    if now.get("digest", "") not in ("", now["declared"]):  # "" without an audit
        yield Claim(
            Verdict.PROVEN,
            "the weights of the reference differ from the recorded ones",
            got=now.get("digest", ""),
            expected=now["declared"],
            specificity=3,
        )
    elif (left := step.facts.get("reference_sync", {}).get("left")) and left != now["declared"]:
        yield Claim(
            Verdict.PROVEN,
            "the reference is another one than the last sync left",
            got=now["declared"],
            expected=left,
            specificity=3,
        )
    elif last not in ("", now["declared"]) and moves is False:
        yield Claim(
            Verdict.PROVEN,
            "the reference has changed since an earlier step, without a declared sync",
            got=now["declared"],
            expected=last,
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


def not_restored() -> Step:
    """A resumed run has the stage's first reference in place of the synced one."""
    step = synced()
    return changed_step(step, facts={"reference_sync": step.facts["reference_sync"] | {"left": "d"}})


def synced() -> Step:
    """A declared sync after the previous step."""
    before = past_step(0, facts={"reference": {"digest": "b", "declared": "b"}})
    sync = {"weight": "w", "due": True, "moved": 0.01, "apart": 0.01, "largest": 0.0, "rounding": 1e-8}
    facts = {"reference": {"declared": "c"}, "reference_sync": sync}
    return changed_step(example_step(), facts=facts, past=[before], setup={"reference_moves": True})


RULE = Rule(
    code="REF001",
    name="reference-changed",
    kind="E",
    needs=("facts.reference",),
    taints=("reference", "policy"),
    applies=lambda step: has_reference(step) or "reference" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(synced,),
)
