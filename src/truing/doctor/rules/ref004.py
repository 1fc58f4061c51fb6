"""REF004: The reference's log-probabilities are not those of a plain forward of it.

What: What the loss or the reward compares the policy with is not what the reference's own weights say of
these tokens: it was shown another prompt, other positions, or its numbers are on other rows.

Why it is silent: A KL to anything is a number above 0 that grows as the policy moves. The penalty then pulls
towards what a model says of a text that nobody asked it about.

How it is measured: Some rows are given to the reference once more, one by one, without padding, the sampling
contract step by step, and compared with what the update used. What is normal is how far the trainer is from
itself on the same tokens, in another shape.

Healthy look-alikes: A reference that is far from the policy: it is compared with itself. Rounding, which is
1e-5 in float32 on a CPU; on a GPU a difference is only suspect.

Fix: Give the reference the very ids that were drawn, with their positions, and score it by the code that
scores the policy. Look at the row with `truing tokens`.

References: https://github.com/huggingface/trl/issues/2703, docs/control.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step
from truing.doctor.forward_difference import ForwardDifference, forward_difference
from truing.doctor.rule import Rule, has_reference
from truing.doctor.rules.smp004 import plain
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def measure(step: Step) -> ForwardDifference:
    """As it was compared beside the update, and where the reference is farthest off."""
    return forward_difference(step, "reference")


def judge(found: ForwardDifference) -> Iterator[Claim]:
    """The weights say something else."""
    if found.differs("reference"):
        far = found.largest["reference"]
        yield Claim(
            Verdict.PROVEN if found.is_certain("reference") else Verdict.SUSPECT,
            f"what the update took for the reference is up to {far:.3g} nats from a plain forward"
            " of the reference",
            got=f"{far:.3g} over {with_count(found.tokens, 'token')}",
            expected=found.expected_text("reference"),
            row=found.row,
            start=found.token,
            end=found.token + 1,
            specificity=3,
        )


def _with_reference(nats: float) -> Step:
    step = plain(reference=nats)
    return changed_step(step, ref_logprob=step.tokens["old_logprob"])


def example() -> Step:
    """The reference was shown the question without its template."""
    return _with_reference(4.0)


def scored_apart() -> Step:
    """The reference was scored in other micro-batches."""
    return _with_reference(3e-5)


RULE = Rule(
    code="REF004",
    name="reference-not-plain",
    kind="M",
    needs=("facts.plain",),
    taints=("reference", "policy"),
    # a look that did not ask the reference says nothing of it
    applies=lambda step: has_reference(step) and "reference" in step.facts.get("plain", {"reference": 0}),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(scored_apart,),
)
