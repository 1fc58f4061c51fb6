"""REF004: The reference's log-probabilities differ from its plain forward.

What: The loss or the reward compares the policy with numbers that differ from the reference's own output
for these tokens. The reference got another prompt, other positions, or its numbers are on other samples.

Why it is silent: A KL to anything is a number above 0 that grows as the policy moves. The penalty then
draws the policy to the model's output for an unrelated text.

How it is measured: The check scores some samples with the reference once more, one by one, without padding,
with the sampling parameters step by step, and compares them with the numbers in the step. The normal
difference is the trainer from itself on the same tokens, in another shape. If the policy's numbers differ
from its plain forward as well, the code that scores both is wrong, and SMP005 comes first.

Healthy look-alikes: A reference far from the policy: the rule compares the reference with itself. Rounding,
which is 1e-5 in float32, and is measured in another precision.

Fix: Give the reference the sampled ids, with their positions, and score it with the code that scores the
policy. Inspect the sample with `truing tokens`.

References: https://github.com/huggingface/trl/issues/2703, docs/control.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.forward_difference import forward_difference
from truing.doctor.rule import Rule, has_reference
from truing.doctor.rules.smp004 import plain
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim numbers that differ from a plain forward."""
    difference = forward_difference(step, "reference")
    if difference.differs("reference"):
        far = difference.largest["reference"]
        alike = difference.differs("trainer")  # the policy too, so the code that scores both is wrong
        yield Claim(
            Verdict.PROVEN if difference.is_certain("reference") else Verdict.SUSPECT,
            f"the step's reference numbers are up to {far:.3g} nats from a plain forward of the reference"
            + ("; so are the policy's: the code that scores both is wrong" if alike else ""),
            got=f"{far:.3g} over {with_count(difference.tokens, 'token')}",
            expected=difference.expected_text("reference"),
            row=difference.row,
            start=difference.token,
            end=difference.token + 1,
            specificity=1.5 if alike else 3,
        )


def _with_reference(nats: float) -> Step:
    step = plain(reference=nats)
    return changed_step(step, ref_logprob=step.tokens["old_logprob"])


def example() -> Step:
    """The reference gets the question without its template."""
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
    # an audit without the reference shows nothing
    applies=lambda step: has_reference(step) and "reference" in step.facts.get("plain", {"reference": 0}),
    judge=judge,
    example=example,
    lookalikes=(scored_apart,),
)
